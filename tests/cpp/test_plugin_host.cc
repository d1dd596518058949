// Native plugins: a toy codec in C goes through the whole table, and what is wrong with a library is told in a
// sentence.
#include <doctest/doctest.h>
#include <geomx/plugin.h>

#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "core/codec.h"

namespace {

using namespace geomx;

std::string toy(const std::string& name) { return std::string(TOY_PLUGIN_DIR) + "/lib" + name + ".so"; }

struct Heard {
  std::vector<std::string> logs;
  std::map<std::string, double> metrics;
  PluginHooks hooks() {
    PluginHooks hooks;
    hooks.log = [this](int level, const std::string& text) { logs.push_back(std::to_string(level) + " " + text); };
    hooks.metric = [this](const std::string& name, double value) { metrics[name] += value; };
    return hooks;
  }
};

PartView view_of(uint64_t offset, uint64_t length, uint64_t tensor_length) {
  PartView view;
  view.offset = offset;
  view.length = length;
  view.tensor_length = tensor_length;
  return view;
}

Bytes bytes_of(const std::vector<float>& values) { return Bytes::copy(values.data(), values.size() * sizeof(float)); }

TEST_CASE("a native codec goes through the whole table") {
  Heard heard;
  {
    CodecRegistry registry(heard.hooks());
    REQUIRE(registry.load(toy("toy_codec")).message() == "");
    CHECK(heard.logs == std::vector<std::string>{"20 toy is here"});
    std::unique_ptr<Codec> codec;
    REQUIRE(registry.make("toy", {{"step", 0.25}}, &codec).message() == "");
    CHECK(codec->wire_id() == fourcc('T', 'O', 'Y', '1'));
    CHECK(codec->scope() == CodecScope::tensor);
    CHECK(codec->keeps_residual());
    CHECK_FALSE(codec->can_merge());
    CHECK(codec->takes(DType::f32));
    CHECK_FALSE(codec->takes(DType::f64));

    const PartView whole = view_of(0, 4, 4), part = view_of(2, 2, 4);
    const auto slot = codec->open_slot(whole);
    REQUIRE(codec->prepare(*slot, whole, bytes_of({1, 2, 3.1f, -4})).message() == "");
    CHECK(codec->max_encoded_size(part) == 2);
    Bytes encoded, decoded, saved;
    REQUIRE(codec->encode(*slot, part, bytes_of({3.1f, -4}), &encoded).message() == "");
    REQUIRE(encoded.size() == 2);
    CHECK(int8_t(encoded.data()[0]) == 12);
    CHECK(int8_t(encoded.data()[1]) == -16);
    REQUIRE(codec->decode(part, encoded, &decoded).message() == "");
    CHECK(decoded.as<float>()[0] == 3);
    float sum[2] = {10, 10};
    REQUIRE(codec->accumulate(part, encoded, sum).message() == "");
    CHECK(sum[1] == 6);
    double contribution = 0;
    REQUIRE(codec->score(part, encoded, &contribution).message() == "");
    CHECK(contribution == 7);

    REQUIRE(codec->give_back(*slot, part, encoded).message() == "");
    REQUIRE(codec->save_slot(*slot, &saved).message() == "");
    REQUIRE(saved.size() == 16);
    CHECK(saved.as<float>()[2] == doctest::Approx(3.1f));
    const auto other = codec->open_slot(whole);
    REQUIRE(codec->load_slot(*other, saved).message() == "");
    Bytes again;
    REQUIRE(codec->encode(*other, part, bytes_of({0, 0}), &again).message() == "");
    CHECK(again.text() == encoded.text());
  }
  CHECK(heard.metrics["toy.closed_slots"] == 2);
  CHECK(heard.metrics["toy.released"] == 1);
}

TEST_CASE("encoding writes into the memory that it is handed, when that is large enough") {
  CodecRegistry registry;
  REQUIRE(registry.load(toy("toy_codec")).ok());
  std::unique_ptr<Codec> codec;
  REQUIRE(registry.make("toy", {}, &codec).ok());
  const PartView whole = view_of(0, 2, 2);
  const auto slot = codec->open_slot(whole);
  Bytes handed = Bytes::allocate(100);
  const uint8_t* start = handed.data();
  REQUIRE(codec->encode(*slot, whole, bytes_of({1, 2}), &handed).ok());
  CHECK(handed.data() == start);
  CHECK(handed.size() == 2);
  Bytes small = Bytes::allocate(1), shared = Bytes::allocate(100);
  const Bytes other_view = shared;
  REQUIRE(codec->encode(*slot, whole, bytes_of({1, 2}), &small).ok());
  REQUIRE(codec->encode(*slot, whole, bytes_of({1, 2}), &shared).ok());
  CHECK(shared.data() != other_view.data());
}

TEST_CASE("what a plugin refuses, and what it does wrong, becomes a sentence") {
  CodecRegistry registry;
  REQUIRE(registry.load(toy("toy_codec")).ok());
  std::unique_ptr<Codec> codec;
  CHECK(registry.make("toy", {{"step", -1.0}}, &codec).message() == "codec toy: step: expected a step above 0");
  CHECK(registry.make("toy", {{"size", "big"}}, &codec).message() == "codec toy: size: expected a step above 0");
  CHECK(registry.make("short", {}, &codec).message().find("codec short: its table has 16 bytes, version 1 needs") == 0);
  CHECK(registry.make("empty", {}, &codec).message() == "codec empty: it has no max_encoded_size, encode or decode");

  REQUIRE(registry.make("liar", {}, &codec).ok());
  const PartView whole = view_of(0, 2, 2);
  const auto slot = codec->open_slot(whole);
  Bytes encoded, decoded;
  CHECK(codec->encode(*slot, whole, bytes_of({1, 2}), &encoded).message() ==
        "it wrote 3 bytes where it said 2 at most");
  CHECK(codec->encode(*slot, whole, bytes_of({1, 2, 3}), &encoded).message() ==
        "expected 8 bytes for 2 elements of float32 but got 12");
  CHECK(codec->decode(whole, Bytes::copy("abc"), &decoded).message() == "a length that isn't the part's");
  CHECK(codec->load_slot(*slot, Bytes::copy("abc")).message() == "a state of another tensor");
  PartView wide = whole;
  wide.dtype = DType::f64;
  CHECK(codec->decode(wide, Bytes::copy("ab"), &decoded).message() == "it takes no values of float64");
}

TEST_CASE("what is no plugin of ours is refused in a sentence that names the file") {
  CodecRegistry registry;
  const std::string missing = toy("toy_missing");
  CHECK(registry.load(missing).message().find("plugin " + missing + ": " + missing + ": cannot open") == 0);
  CHECK(registry.load(toy("toy_newer")).message() ==
        "plugin " + toy("toy_newer") +
            ": it was built for version 2 of geomx/plugin.h, this GeoMX has version 1; install builds that belong "
            "together");
  CHECK(registry.load(toy("toy_nothing")).message() ==
        "plugin " + toy("toy_nothing") +
            ": it has no geomx_plugin_v1, so it is no GeoMX plugin (is the function declared by geomx/plugin.h and "
            "extern \"C\"?)");
  CHECK(registry.load(toy("toy_refusing")).message() ==
        "plugin " + toy("toy_refusing") +
            ": this version takes no native schedulers; write it in Python: python -m geomx.plugin new scheduler NAME");
  CHECK(registry.load(toy("toy_twice")).message() ==
        "plugin " + toy("toy_twice") + ": it adds a codec named toy twice");
  REQUIRE(registry.load(toy("toy_codec")).ok());
  CHECK(registry.load(toy("toy_codec")).message().find("is there already: two plugins offer it") != std::string::npos);
}

TEST_CASE("two nodes of one process have a plugin each") {
  Heard first, second;
  CodecRegistry a(first.hooks()), b(second.hooks());
  REQUIRE(a.load(toy("toy_codec")).ok());
  REQUIRE(b.load(toy("toy_codec")).ok());
  std::unique_ptr<Codec> codec;
  REQUIRE(a.make("toy", {}, &codec).ok());
  codec.reset();
  CHECK(first.metrics["toy.released"] == 1);
  CHECK(second.metrics.empty());
}

}  // namespace
