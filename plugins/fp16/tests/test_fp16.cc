// The two codecs as the core uses them: bytes, rounding, sums, overflow, every type, every length.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "core/codec.h"

namespace {

using namespace geomx;

struct Fixture {
  std::map<std::string, double> metrics;
  CodecRegistry registry;
  std::unique_ptr<Codec> codec;

  explicit Fixture(const std::string& name, const Params& params = {}) {
    PluginHooks hooks;
    hooks.metric = [this](const std::string& metric, double value) { metrics[metric] += value; };
    registry.set_hooks(hooks);
    REQUIRE(registry.load(PLUGIN_LIBRARY).message() == "");
    REQUIRE(registry.make(name, params, &codec).message() == "");
  }

  template <typename T>
  Bytes encode(DType dtype, const std::vector<T>& values) {
    const PartView view = view_of(dtype, values.size());
    Bytes encoded;
    const Bytes in = Bytes::copy(values.data(), values.size() * sizeof(T));
    REQUIRE(codec->encode(*codec->open_slot(view), view, in, &encoded).message() == "");
    return encoded;
  }
  template <typename T>
  std::vector<T> decode(DType dtype, const Bytes& encoded) {
    Bytes values;
    REQUIRE(codec->decode(view_of(dtype, encoded.size() / 2), encoded, &values).message() == "");
    return std::vector<T>(values.as<T>(), values.as<T>() + values.size() / sizeof(T));
  }
  static PartView view_of(DType dtype, uint64_t length) {
    PartView view;
    view.dtype = dtype;
    view.length = view.tensor_length = length;
    return view;
  }
};

std::vector<uint16_t> halves_of(const Bytes& bytes) {
  std::vector<uint16_t> halves(bytes.size() / 2);
  if (!halves.empty()) std::memcpy(halves.data(), bytes.data(), bytes.size());
  return halves;
}

constexpr float inf = std::numeric_limits<float>::infinity();

TEST_CASE("the bytes are halves in order") {
  Fixture fp16("fp16"), bf16("bf16");
  CHECK(fp16.codec->wire_id() == fourcc('F', 'P', '1', '6'));
  CHECK(bf16.codec->wire_id() == fourcc('B', 'F', '1', '6'));
  const std::vector<float> values = {1, -2, 0.1f, 65504};
  CHECK(halves_of(fp16.encode(DType::f32, values)) == std::vector<uint16_t>{0x3c00, 0xc000, 0x2e66, 0x7bff});
  CHECK(halves_of(bf16.encode(DType::f32, values)) == std::vector<uint16_t>{0x3f80, 0xc000, 0x3dcd, 0x4780});
  CHECK(fp16.metrics.empty());
}

TEST_CASE("parts merge in float32, and not where the sum is beyond the format") {
  Fixture fixture("fp16");
  const std::vector<float> one = {1, 60000, -0.5f}, other = {2047, 5000, 0.25f}, large = {0, 6000, 0};
  const PartView view = Fixture::view_of(DType::f32, 3);
  const auto merge = [&](const std::vector<float>& second) {
    Bytes merged;
    REQUIRE(fixture.codec->merge(view, {fixture.encode(DType::f32, one), fixture.encode(DType::f32, second)}, &merged)
                .message() == "");
    return merged;
  };
  CHECK(fixture.codec->can_merge());
  CHECK(fixture.decode<float>(DType::f32, merge(other)) == std::vector<float>{2048, 64992, -0.25f});
  CHECK(merge(large).data() == nullptr);
  CHECK(fixture.metrics.empty());
}

TEST_CASE("every length: two bytes a value, back within the rounding, added in float32") {
  for (const std::string name : {"fp16", "bf16"}) {
    Fixture fixture(name);
    const double bound = name == "fp16" ? 1.0 / 2048 : 1.0 / 256;
    for (size_t n = 0; n <= 67; ++n) {
      std::vector<float> values(n), sum(n, 100);
      for (size_t i = 0; i < n; ++i) values[i] = std::sin(float(i)) * 3;
      const Bytes encoded = fixture.encode(DType::f32, values);
      CHECK(encoded.size() == 2 * n);
      const std::vector<float> decoded = fixture.decode<float>(DType::f32, encoded);
      REQUIRE(fixture.codec->accumulate(Fixture::view_of(DType::f32, n), encoded, sum.data()).ok());
      for (size_t i = 0; i < n; ++i) {
        CHECK(std::fabs(decoded[i] - values[i]) <= std::fabs(values[i]) * bound);
        CHECK(sum[i] == 100 + decoded[i]);
      }
    }
  }
}

TEST_CASE("saturate: what is too large becomes the largest value and is counted; NaN stays NaN") {
  Fixture fixture("fp16", {{"overflow", "saturate"}});
  const std::vector<float> decoded =
      fixture.decode<float>(DType::f32, fixture.encode<float>(DType::f32, {1e6f, -1e6f, inf, -inf, NAN, 65519}));
  CHECK(decoded[0] == 65504);
  CHECK(decoded[1] == -65504);
  CHECK(decoded[2] == 65504);
  CHECK(decoded[3] == -65504);
  CHECK(std::isnan(decoded[4]));
  CHECK(decoded[5] == 65504);
  CHECK(fixture.metrics["fp16.overflow"] == 4);
}

TEST_CASE("inf: what is too large becomes infinity and is counted; infinity stays") {
  Fixture fixture("bf16", {{"overflow", "inf"}});
  const std::vector<float> decoded =
      fixture.decode<float>(DType::f32, fixture.encode<float>(DType::f32, {3.4e38f, -3.4e38f, inf, -inf, NAN, 1e30f}));
  CHECK(decoded[0] == inf);
  CHECK(decoded[1] == -inf);
  CHECK(decoded[2] == inf);
  CHECK(decoded[3] == -inf);
  CHECK(std::isnan(decoded[4]));
  CHECK(decoded[5] == doctest::Approx(1e30).epsilon(0.01));
  CHECK(fixture.metrics["bf16.overflow"] == 2);
}

TEST_CASE("float64 is taken, also where it doesn't come out even") {
  Fixture fixture("fp16");
  for (size_t n : {0, 1, 4095, 4096, 4097, 10000}) {
    std::vector<double> values(n), sum(n, 0.5);
    for (size_t i = 0; i < n; ++i) values[i] = std::cos(double(i));
    const Bytes encoded = fixture.encode(DType::f64, values);
    CHECK(encoded.size() == 2 * n);
    const std::vector<double> decoded = fixture.decode<double>(DType::f64, encoded);
    REQUIRE(fixture.codec->accumulate(Fixture::view_of(DType::f64, n), encoded, sum.data()).ok());
    for (size_t i = 0; i < n; ++i) {
      CHECK(std::fabs(decoded[i] - values[i]) <= 1.0 / 2048);
      CHECK(sum[i] == 0.5 + decoded[i]);
    }
  }
}

TEST_CASE("keys in half precision keep their own format") {
  Fixture fixture("fp16");
  CHECK(halves_of(fixture.encode<float>(DType::f16, {1.5f})) == std::vector<uint16_t>{0x3e00});
  CHECK(halves_of(fixture.encode<float>(DType::bf16, {1.5f})) == std::vector<uint16_t>{0x3fc0});
  CHECK(fixture.decode<float>(DType::bf16, fixture.encode<float>(DType::bf16, {1e30f}))[0] > 9e29f);
}

TEST_CASE("wrong bytes, types and options are refused in a sentence") {
  Fixture fixture("fp16");
  float sum[3] = {1, 2, 3};
  const PartView view = Fixture::view_of(DType::f32, 3);
  CHECK(fixture.codec->accumulate(view, Bytes::copy("12345"), sum).message() ==
        "expected 6 bytes for 3 values of 16 bits but got 5");
  CHECK(sum[0] == 1);
  CHECK_FALSE(fixture.codec->takes(DType::i32));
  CHECK_FALSE(fixture.codec->keeps_residual());
  std::unique_ptr<Codec> codec;
  CHECK(fixture.registry.make("fp16", {{"overflow", "wrap"}}, &codec).message() ==
        "codec fp16: overflow: allowed are saturate and inf");
  CHECK(fixture.registry.make("bf16", {{"ratio", 0.1}}, &codec).message() == "codec bf16: ratio: no such option");
}

}  // namespace
