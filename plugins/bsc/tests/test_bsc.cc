// The codec as the core uses it: what is chosen, what stays, what comes back.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "core/codec.h"

namespace {

using namespace geomx;

struct Fixture {
  std::map<std::string, double> metrics;
  std::vector<std::string> lines;
  CodecRegistry registry;
  std::unique_ptr<Codec> codec;

  explicit Fixture(const Params& params, Content answer = Content::gradient) {
    PluginHooks hooks;
    hooks.metric = [this](const std::string& metric, double value) { metrics[metric] += value; };
    hooks.log = [this](int, const std::string& line) { lines.push_back(line); };
    hooks.answer = answer;
    registry.set_hooks(hooks);
    REQUIRE(registry.load(PLUGIN_LIBRARY).message() == "");
    REQUIRE(registry.make("bsc", params, &codec).message() == "");
  }
};

PartView whole_of(uint64_t length, DType dtype = DType::f32, Direction direction = Direction::up) {
  PartView view;
  view.tier = Tier::wan;
  view.direction = direction;
  view.dtype = dtype;
  view.length = view.tensor_length = length;
  view.round = 1;
  return view;
}

// Sends a tensor of float32 cut into parts, and adds up what arrives.
struct Stream {
  Codec& codec;
  PartView whole;
  uint64_t part_length;
  std::unique_ptr<Slot> slot;
  std::vector<Bytes> parts;

  Stream(Codec& c, PartView view, uint64_t part = 0)
      : codec(c),
        whole(view),
        part_length(part ? part : std::max<uint64_t>(view.length, 1)),
        slot(c.open_slot(whole)) {}
  PartView view_of(size_t part) const {
    PartView view = whole;
    view.part = uint32_t(part);
    view.offset = part * part_length;
    view.length = std::min(part_length, whole.length - view.offset);
    return view;
  }
  template <typename T>
  std::vector<T> send(const std::vector<T>& values) {
    const Bytes in = Bytes::copy(values.data(), values.size() * sizeof(T));
    REQUIRE(codec.prepare(*slot, whole, in).message() == "");
    parts.clear();
    std::vector<T> got(values.size());
    for (size_t part = 0; part * part_length < std::max<uint64_t>(whole.length, 1); ++part) {
      const PartView view = view_of(part);
      Bytes encoded;
      REQUIRE(
          codec.encode(*slot, view, in.slice(view.offset * sizeof(T), view.length * sizeof(T)), &encoded).message() ==
          "");
      REQUIRE(codec.accumulate(view, encoded, got.data() + view.offset).message() == "");
      parts.push_back(encoded);
    }
    ++whole.round;
    return got;
  }
};

std::vector<float> drawn(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw;
  std::vector<float> values(n);
  for (float& value : values) value = draw(random);
  return values;
}

size_t nonzeros(const std::vector<float>& values) {
  return size_t(std::count_if(values.begin(), values.end(), [](float v) { return v != 0; }));
}

TEST_CASE("exactly the k largest leave, whatever the length, the order and the parts") {
  for (const size_t n : {1u, 2u, 15u, 16u, 17u, 100u, 1000u, 20000u, 300001u}) {
    for (const double ratio : {1e-6, 0.001, 0.01, 0.2, 0.5, 1.0}) {
      for (int order = 0; order < 3; ++order) {
        Fixture fixture({{"ratio", ratio}, {"momentum", 0.0}});
        std::vector<float> values = drawn(n, 7);
        const auto by_size = [](float a, float b) { return std::fabs(a) < std::fabs(b); };
        if (order == 1) std::sort(values.begin(), values.end(), by_size);
        if (order == 2) std::sort(values.rbegin(), values.rend(), by_size);
        Stream stream(*fixture.codec, whole_of(n), 70000);
        const std::vector<float> got = stream.send(values);
        const size_t k = std::clamp<size_t>(size_t(std::ceil(ratio * double(n) - 1e-9 * double(n))), 1, n);
        CHECK(nonzeros(got) == k);
        std::vector<float> sizes(n);
        for (size_t i = 0; i < n; ++i) sizes[i] = std::fabs(values[i]);
        std::nth_element(sizes.begin(), sizes.begin() + long(k - 1), sizes.end(), std::greater<float>());
        bool is_right = true;
        for (size_t i = 0; i < n; ++i)
          is_right = is_right && got[i] == (std::fabs(values[i]) >= sizes[k - 1] ? values[i] : 0.0f);
        CHECK(is_right);
      }
    }
  }
}

TEST_CASE("momentum correction and factor masking, against the formulas, over rounds") {
  const size_t n = 40000, k = 400;
  Fixture fixture({{"ratio", 0.01}, {"momentum", 0.9}});
  Stream stream(*fixture.codec, whole_of(n), 9000);
  std::vector<float> u(n), v(n);
  for (uint32_t round = 0; round < 20; ++round) {
    const std::vector<float> g = drawn(n, round);
    std::vector<float> sizes(n);
    for (size_t i = 0; i < n; ++i) {
      u[i] = 0.9f * u[i];
      u[i] = u[i] + g[i];
      v[i] = v[i] + u[i];
      sizes[i] = std::fabs(v[i]);
    }
    std::nth_element(sizes.begin(), sizes.begin() + long(k - 1), sizes.end(), std::greater<float>());
    const std::vector<float> got = stream.send(g);
    size_t wrong = 0;
    for (size_t i = 0; i < n; ++i) {
      const bool leaves = std::fabs(v[i]) >= sizes[k - 1];
      wrong += std::fabs(got[i] - (leaves ? v[i] : 0.0f)) > 1e-5f;
      if (leaves) u[i] = v[i] = 0;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("a ratio of 1 is no compression, with momentum too") {
  Fixture fixture({{"ratio", 1.0}, {"momentum", 0.9}});
  Stream stream(*fixture.codec, whole_of(1000), 300);
  for (uint32_t round = 0; round < 5; ++round) {
    const std::vector<float> values = drawn(1000, round);
    CHECK(stream.send(values) == values);
  }
}

TEST_CASE("nothing is lost over 50 rounds: sent + kept = given, in every width") {
  for (const int64_t bits : {32, 16, 8}) {
    Fixture fixture({{"ratio", 0.02}, {"momentum", 0.0}, {"value_bits", bits}});
    Stream stream(*fixture.codec, whole_of(5000), 1234);
    std::vector<double> given(5000), sent(5000);
    for (uint32_t round = 0; round < 50; ++round) {
      const std::vector<float> values = drawn(5000, round), got = stream.send(values);
      for (size_t i = 0; i < 5000; ++i) {
        given[i] += double(values[i]);
        sent[i] += double(got[i]);
      }
    }
    Bytes state;
    REQUIRE(fixture.codec->save_slot(*stream.slot, &state).ok());
    const float* kept = reinterpret_cast<const float*>(state.data() + state.size() - 5000 * sizeof(float));
    double worst = 0;
    for (size_t i = 0; i < 5000; ++i) worst = std::max(worst, std::fabs(given[i] - sent[i] - double(kept[i])));
    CHECK(worst < 1e-4);
  }
}

TEST_CASE("ties at the border are drawn by lot: no index is preferred") {
  const size_t n = 1000, rounds = 400;
  std::vector<int> times(n);
  for (uint32_t round = 1; round <= rounds; ++round) {
    Fixture fixture({{"ratio", 0.1}, {"momentum", 0.0}});
    PartView whole = whole_of(n);
    whole.round = round;
    Stream stream(*fixture.codec, whole);
    const std::vector<float> got = stream.send(std::vector<float>(n, 1.0f));
    CHECK(nonzeros(got) == 100);
    for (size_t i = 0; i < n; ++i) times[i] += got[i] != 0;
  }
  double first = std::accumulate(times.begin(), times.begin() + 500, 0.0) / 500;
  double second = std::accumulate(times.begin() + 500, times.end(), 0.0) / 500;
  CHECK(std::fabs(first - 40) < 1.5);
  CHECK(std::fabs(second - 40) < 1.5);
  CHECK(*std::max_element(times.begin(), times.end()) < 75);
  CHECK(*std::min_element(times.begin(), times.end()) > 12);
}

TEST_CASE("many equal or zero values in a long tensor") {
  Fixture fixture({{"ratio", 0.01}, {"momentum", 0.0}});
  for (const size_t ones : {0u, 10u, 300000u}) {
    Stream stream(*fixture.codec, whole_of(300000), 65536);
    std::vector<float> values(300000);
    std::fill_n(values.begin(), ones, 1.0f);
    CHECK(nonzeros(stream.send(values)) == std::min<size_t>(ones, 3000));
  }
}

TEST_CASE("NaN and infinity count as 0, are told, and never stay") {
  for (const double momentum : {0.0, 0.9}) {
    Fixture fixture({{"ratio", 0.5}, {"momentum", momentum}});
    Stream stream(*fixture.codec, whole_of(20000));
    std::vector<float> values = drawn(20000, 1);
    values[0] = NAN;
    values[17] = INFINITY;
    values[19999] = -INFINITY;
    values[5] = std::numeric_limits<float>::max();
    for (int round = 0; round < 3; ++round) {
      const std::vector<float> got = stream.send(values);
      CHECK(std::all_of(got.begin(), got.end(), [](float v) { return std::isfinite(v); }));
      CHECK(got[0] == 0);
      CHECK(got[5] > 1e38f);
    }
    CHECK(fixture.metrics["bsc.not_finite"] == 9);
    CHECK(fixture.lines.size() == 1);
    CHECK(fixture.lines[0].find("3 of 20000 values of key 0 are NaN or infinite in round 1") != std::string::npos);
  }
}

TEST_CASE("what was lost goes back into the residual and leaves again") {
  Fixture fixture({{"ratio", 0.1}, {"momentum", 0.0}});
  Stream stream(*fixture.codec, whole_of(1000), 100);
  const std::vector<float> values = drawn(1000, 3), first = stream.send(values);
  for (size_t part = 0; part < stream.parts.size(); ++part)
    REQUIRE(fixture.codec->give_back(*stream.slot, stream.view_of(part), stream.parts[part]).message() == "");
  CHECK(stream.send(std::vector<float>(1000)) == first);
}

TEST_CASE("down: a residual for a server's shard, without momentum") {
  Fixture fixture({{"ratio", 0.5}, {"momentum", 0.9}});
  PartView whole = whole_of(100, DType::f32, Direction::down);
  whole.tensor_length = 1000;
  whole.offset = 300;
  PartView part = whole;
  auto slot = fixture.codec->open_slot(whole);
  const std::vector<float> values = drawn(100, 3);
  std::vector<double> sent(100);
  for (int round = 0; round < 4; ++round) {
    const Bytes in = Bytes::copy(values.data(), 400);
    Bytes encoded, got;
    REQUIRE(fixture.codec->prepare(*slot, whole, in).message() == "");
    REQUIRE(fixture.codec->encode(*slot, part, in, &encoded).message() == "");
    REQUIRE(fixture.codec->decode(part, encoded, &got).message() == "");
    for (size_t i = 0; i < 100; ++i) sent[i] += double(got.as<float>()[i]);
  }
  for (size_t i = 0; i < 100; ++i) CHECK(std::fabs(sent[i]) <= 4.001 * std::fabs(double(values[i])));
  part.offset = 350;
  Bytes encoded;
  CHECK(fixture.codec->encode(*slot, part, Bytes::copy(values.data(), 400), &encoded).message().find("outside") !=
        std::string::npos);
}

TEST_CASE("merging adds exactly, whatever the width of what is merged") {
  for (const int64_t bits : {32, 16, 8}) {
    Fixture fixture({{"ratio", 0.1}, {"momentum", 0.0}, {"value_bits", bits}});
    std::vector<Bytes> parts;
    std::vector<float> sum(3000), merged(3000);
    for (uint32_t party = 0; party < 5; ++party) {
      Stream stream(*fixture.codec, whole_of(3000));
      const std::vector<float> got = stream.send(drawn(3000, party));
      for (size_t i = 0; i < 3000; ++i) sum[i] += got[i];
      parts.push_back(stream.parts[0]);
    }
    Bytes out;
    REQUIRE(fixture.codec->merge(whole_of(3000), parts, &out).message() == "");
    REQUIRE(fixture.codec->accumulate(whole_of(3000), out, merged.data()).message() == "");
    CHECK(merged == sum);
    double score = 0, magnitude = 0;
    REQUIRE(fixture.codec->score(whole_of(3000), out, &score).ok());
    for (float value : sum) magnitude += std::fabs(double(value));
    CHECK(score == doctest::Approx(magnitude));
  }
}

TEST_CASE("float64 and halves: sums as wide as the key's, values at its width") {
  Fixture fixture({{"ratio", 0.5}, {"momentum", 0.9}});
  Stream wide(*fixture.codec, whole_of(64, DType::f64));
  std::vector<double> values(64);
  std::iota(values.begin(), values.end(), 1.0);
  const std::vector<double> got = wide.send(values);
  for (size_t i = 0; i < 64; ++i) CHECK(got[i] == (i < 32 ? 0.0 : values[i]));
  for (const DType half : {DType::f16, DType::bf16}) {
    Stream narrow(*fixture.codec, whole_of(64, half));
    const std::vector<float> sent = narrow.send(drawn(64, 1));
    CHECK(nonzeros(sent) == 32);
    CHECK(narrow.parts[0].size() < 4 + 32 * 2 + 32);
  }
  CHECK_FALSE(fixture.codec->takes(DType::i32));
}

TEST_CASE("a slot at rest") {
  Fixture fixture({{"ratio", 0.1}});
  Stream one(*fixture.codec, whole_of(1000)), two(*fixture.codec, whole_of(1000));
  Bytes state;
  REQUIRE(fixture.codec->save_slot(*two.slot, &state).ok());
  REQUIRE(fixture.codec->load_slot(*one.slot, state).message() == "");  // unused is a state too
  one.send(drawn(1000, 1));
  REQUIRE(fixture.codec->save_slot(*one.slot, &state).ok());
  REQUIRE(fixture.codec->load_slot(*two.slot, state).message() == "");
  two.whole.round = one.whole.round;
  CHECK(one.send(drawn(1000, 2)) == two.send(drawn(1000, 2)));
  CHECK_FALSE(fixture.codec->load_slot(*two.slot, state.slice(0, state.size() - 1)).ok());
  CHECK_FALSE(fixture.codec->load_slot(*two.slot, Bytes::copy("1234")).ok());
  CHECK(fixture.codec->save_slot(*two.slot, &state).ok());
}

TEST_CASE("the ratio falls from the warm-up's to its own") {
  Fixture fixture({{"ratio", 0.01}, {"momentum", 0.0}, {"warmup_rounds", int64_t(4)}, {"warmup_ratio", 0.16}});
  Stream stream(*fixture.codec, whole_of(10000));
  std::vector<size_t> counts;
  for (uint32_t round = 0; round < 6; ++round) counts.push_back(nonzeros(stream.send(drawn(10000, round))));
  CHECK(counts == std::vector<size_t>{1600, 800, 400, 200, 100, 100});
}

TEST_CASE("momentum is the optimizer's where the servers have one; weights are not for this codec") {
  Fixture fixture({{"ratio", 0.5}, {"momentum", 0.9}}, Content::parameter);
  CHECK(fixture.codec->carries(Content::gradient));
  CHECK_FALSE(fixture.codec->carries(Content::parameter));
  Stream stream(*fixture.codec, whole_of(2));
  CHECK(stream.send(std::vector<float>{4, 1}) == std::vector<float>{4, 0});
  CHECK(stream.send(std::vector<float>{1, 1}) == std::vector<float>{0, 2});
}

TEST_CASE("the published behaviour: low indices win, a fixed sample, no residual on the way down") {
  Fixture fixture({});
  std::unique_ptr<Codec> original;
  REQUIRE(fixture.registry.make("bsc-original", {{"ratio", 0.1}}, &original).message() == "");
  Stream up(*original, whole_of(1000), 300), down(*original, whole_of(1000, DType::f32, Direction::down), 300);
  const std::vector<float> same(1000, 1.0f), got = up.send(same);
  for (size_t i = 0; i < 1000; ++i) CHECK(got[i] == (i < 100 ? 1.0f : 0.0f));
  CHECK(up.send(same)[100] == doctest::Approx(2.9));  // v = 1 + (0.9 + 1)
  const std::vector<float> first = down.send(same), second = down.send(same);
  CHECK(first == second);
  CHECK(nonzeros(first) == 100);
  Stream empty(*original, whole_of(0));
  CHECK(empty.send(std::vector<float>()).empty());
}

TEST_CASE("options") {
  Fixture fixture({});
  std::unique_ptr<Codec> codec;
  const auto why = [&](const Params& params) { return fixture.registry.make("bsc", params, &codec).message(); };
  CHECK(why({{"ratio", 0.0}}) == "codec bsc: ratio: allowed is a number above 0 and at most 1");
  CHECK(why({{"ratio", 1.5}}) == "codec bsc: ratio: allowed is a number above 0 and at most 1");
  CHECK(why({{"ratio", double(NAN)}}) == "codec bsc: ratio: allowed is a number above 0 and at most 1");
  CHECK(why({{"ratio", std::string("much")}}) == "codec bsc: ratio: allowed is a number above 0 and at most 1");
  CHECK(why({{"momentum", 1.0}}) == "codec bsc: momentum: allowed is a number at least 0 and below 1");
  CHECK(why({{"value_bits", int64_t(4)}}) == "codec bsc: value_bits: allowed are 32, 16 and 8");
  CHECK(why({{"warmup_rounds", int64_t(-1)}}) == "codec bsc: warmup_rounds: allowed is a whole number at least 0");
  CHECK(why({{"rat", 0.1}}) == "codec bsc: rat: no such option");
  CHECK(why({{"ratio", int64_t(1)}}) == "");
}

}  // namespace

TEST_CASE("of a difference nothing is kept, and what is largest leaves") {
  Fixture f({{"ratio", 0.01}, {"momentum", 0.9}}, Content::parameter);
  CHECK(f.codec->carries(Content::delta));
  CHECK(!f.codec->carries(Content::parameter));
  PartView whole = whole_of(1000, DType::f32, Direction::down);
  whole.content = Content::delta;
  std::unique_ptr<Slot> slot = f.codec->open_slot(whole);
  for (uint32_t round = 1; round <= 3; ++round) {
    whole.round = round;
    Bytes values = Bytes::allocate(4000);
    float* at = reinterpret_cast<float*>(values.writable());
    for (int i = 0; i < 1000; ++i) at[i] = (i + 100 * round) % 1000 < 10 ? 5.0f : 1.0f;
    REQUIRE(f.codec->prepare(*slot, whole, values).ok());
    Bytes encoded, decoded;
    REQUIRE(f.codec->encode(*slot, whole, values, &encoded).ok());
    REQUIRE(f.codec->decode(whole, encoded, &decoded).ok());
    for (int i = 0; i < 1000; ++i) CHECK(decoded.as<float>()[i] == ((i + 100 * round) % 1000 < 10 ? 5.0f : 0.0f));
  }
  Bytes saved;
  REQUIRE(f.codec->save_slot(*slot, &saved).ok());
  CHECK(saved.size() < 64);
  CHECK(f.codec->load_slot(*slot, saved).ok());
}
