// The identity codec, the element types and the registry.
#include <doctest/doctest.h>

#include <vector>

#include "core/identity_codec.h"

namespace {

using namespace geomx;

PartView view_of(DType dtype, uint64_t length) {
  PartView view;
  view.dtype = dtype;
  view.length = view.tensor_length = length;
  return view;
}

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  return Bytes::copy(values.data(), values.size() * sizeof(T));
}

TEST_CASE("element types: names and sizes go both ways") {
  for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u8}) {
    DType parsed = DType::u8;
    CHECK(parse_dtype(name_of(dtype), &parsed));
    CHECK(parsed == dtype);
  }
  DType untouched = DType::i32;
  CHECK_FALSE(parse_dtype("float", &untouched));
  CHECK(untouched == DType::i32);
  CHECK(size_of(DType::bf16) == 2);
  CHECK(sum_type(DType::bf16) == DType::f32);
  CHECK(sum_type(DType::i64) == DType::i64);
}

TEST_CASE("identity shares memory where the widths agree") {
  const auto codec = make_identity_codec();
  const PartView view = view_of(DType::f32, 3);
  const auto slot = codec->open_slot(view);
  const Bytes values = bytes_of<float>({1, 2, 3});
  Bytes encoded, decoded;
  REQUIRE(codec->encode(*slot, view, values, &encoded).ok());
  CHECK(encoded.data() == values.data());
  REQUIRE(codec->decode(view, encoded, &decoded).ok());
  CHECK(decoded.data() == values.data());
}

TEST_CASE("identity copies what came misaligned") {
  const auto codec = make_identity_codec();
  const Bytes buffer = Bytes::copy(std::string(17, 'x'));
  Bytes decoded;
  REQUIRE(codec->decode(view_of(DType::f64, 2), buffer.slice(1, 16), &decoded).ok());
  CHECK(reinterpret_cast<uintptr_t>(decoded.data()) % 8 == 0);
  CHECK(decoded.text() == std::string(16, 'x'));
}

TEST_CASE("identity sends halves for keys in half precision and sums them in float32") {
  for (DType dtype : {DType::f16, DType::bf16}) {
    const auto codec = make_identity_codec();
    const PartView view = view_of(dtype, 3);
    const auto slot = codec->open_slot(view);
    Bytes encoded, decoded;
    REQUIRE(codec->encode(*slot, view, bytes_of<float>({1, -2, 0.5f}), &encoded).ok());
    CHECK(encoded.size() == 6);
    REQUIRE(codec->decode(view, encoded, &decoded).ok());
    CHECK(decoded.size() == 12);
    CHECK(decoded.as<float>()[1] == -2);
    std::vector<float> sum = {10, 10, 10};
    REQUIRE(codec->accumulate(view, encoded, sum.data()).ok());
    CHECK(sum == std::vector<float>{11, 8, 10.5f});
    double contribution = 0;
    REQUIRE(codec->score(view, encoded, &contribution).ok());
    CHECK(contribution == 3.5);
  }
}

template <typename T>
void check_accumulate(DType dtype) {
  std::vector<T> sum = {1, 2, 3};
  REQUIRE(make_identity_codec()->accumulate(view_of(dtype, 3), bytes_of<T>({10, 20, 30}), sum.data()).ok());
  CHECK(sum == std::vector<T>{11, 22, 33});
}

TEST_CASE("identity accumulates every type") {
  check_accumulate<float>(DType::f32);
  check_accumulate<double>(DType::f64);
  check_accumulate<int32_t>(DType::i32);
  check_accumulate<int64_t>(DType::i64);
  check_accumulate<uint8_t>(DType::u8);
}

TEST_CASE("identity takes a part without elements") {
  const auto codec = make_identity_codec();
  const PartView view = view_of(DType::f32, 0);
  const auto slot = codec->open_slot(view);
  Bytes encoded, decoded;
  CHECK(codec->encode(*slot, view, Bytes(), &encoded).ok());
  CHECK(codec->decode(view, encoded, &decoded).ok());
  CHECK(codec->accumulate(view, encoded, nullptr).ok());
}

TEST_CASE("identity refuses a wrong length in a sentence") {
  const auto codec = make_identity_codec();
  Bytes decoded;
  const std::string expected = "expected 12 bytes for 3 elements of float32 but got 8";
  const Bytes bytes = bytes_of<float>({1, 2});
  CHECK(codec->decode(view_of(DType::f32, 3), bytes, &decoded).message() == expected);
  float sum[3] = {};
  CHECK(codec->accumulate(view_of(DType::f32, 3), bytes, sum).message() == expected);
}

TEST_CASE("the registry says what there is") {
  CodecRegistry registry;
  std::unique_ptr<Codec> codec;
  CHECK(registry.make("identity", {}, &codec).ok());
  CHECK(registry.make("fp8", {}, &codec).message() == "no codec named fp8; there are: identity");
  CHECK(registry.make("identity", {{"ratio", 0.5}}, &codec).message() ==
        "codec identity: takes no parameters but was given ratio");
  CHECK(registry.add("identity", nullptr).message() ==
        "a codec named identity is there already: two plugins offer it; keep one");
}

}  // namespace
