// The policy and the four-bit codec as the core uses them.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "core/policies.h"

namespace {

using namespace geomx;

Params with(const std::string& name, std::variant<int64_t, double, std::string> value) {
  Params params;
  params[name] = std::move(value);
  return params;
}

struct Fixture {
  std::map<std::string, double> metrics;
  std::vector<std::string> logs;
  CodecRegistry registry;
  std::unique_ptr<TransportPolicy> policy;
  std::string why;

  explicit Fixture(const Params& params) {
    PluginHooks hooks;
    hooks.metric = [this](const std::string& name, double value) { metrics[name] += value; };
    hooks.log = [this](int, const std::string& line) { logs.push_back(line); };
    registry.set_hooks(hooks);
    REQUIRE(registry.load(PLUGIN_LIBRARY).message() == "");
    why = registry.make_transport("dgt", params, &policy).message();
  }
  std::vector<PartClass> classify(const std::vector<double>& means) {
    std::vector<PartView> views;
    std::vector<double> scores;
    for (size_t i = 0; i < means.size(); ++i) {
      PartView view;
      view.part = uint32_t(i);
      view.length = 10;
      views.push_back(view);
      scores.push_back(means[i] * 10);
    }
    return policy->classify(views, scores);
  }
  std::vector<int> channels(const std::vector<double>& means) {
    std::vector<int> out;
    for (const PartClass& one : classify(means)) {
      CHECK(one.is_droppable == (one.channel != 0));
      out.push_back(one.channel);
    }
    return out;
  }
};

TEST_CASE("the largest share is reliable, the rest is spread over the channels in order") {
  Fixture fixture({{"k", 0.4}, {"channels", int64_t(3)}});
  CHECK(fixture.policy->is_lossy());
  CHECK(fixture.policy->channels().count == 3);
  CHECK(fixture.channels({1, 9, 8, 2, 7, 6, 3, 5, 4, 0.5}) == std::vector<int>{3, 0, 0, 2, 0, 0, 2, 1, 1, 3});
}

TEST_CASE("a tensor of one part is reliable; k of 1 leaves nothing out") {
  CHECK(Fixture({}).channels({3}) == std::vector<int>{0});
  CHECK(Fixture(with("k", 1.0)).channels({3, 2, 1}) == std::vector<int>{0, 0, 0});
  CHECK(Fixture({}).channels({}).empty());
}

TEST_CASE("contributions are smoothed: c <- alpha c + (1 - alpha) mean") {
  Fixture fixture({{"k", 0.5}, {"channels", int64_t(1)}, {"alpha", 0.8}});
  CHECK(fixture.channels({10, 1}) == std::vector<int>{0, 1});
  // 0.8 * 10 + 0.2 * 0 = 8 and 0.8 * 1 + 0.2 * 30 = 6.8: the past still counts for more.
  CHECK(fixture.channels({0, 30}) == std::vector<int>{0, 1});
  CHECK(fixture.channels({0, 30}) == std::vector<int>{1, 0});
}

TEST_CASE("k falls with the loss that is reported, not below k_min, and stays where none is") {
  Fixture fixture({{"k", 0.8}, {"k_min", 0.3}, {"adaptive_k", int64_t(1)}, {"channels", int64_t(1)}});
  const std::vector<double> ten{10, 9, 8, 7, 6, 5, 4, 3, 2, 1};
  const auto reliable = [&] {
    int count = 0;
    for (int channel : fixture.channels(ten)) count += channel == 0;
    return count;
  };
  CHECK(reliable() == 8);
  fixture.policy->on_metric("loss", 2.0);
  CHECK(reliable() == 8);
  fixture.policy->on_metric("loss", 1.25);
  CHECK(reliable() == 5);
  fixture.policy->on_metric("accuracy", 0.1);
  fixture.policy->on_metric("loss", NAN);
  CHECK(reliable() == 5);
  fixture.policy->on_metric("loss", 0.01);
  CHECK(reliable() == 3);
  fixture.policy->on_metric("loss", 50);
  CHECK(reliable() == 10);
  CHECK(fixture.logs.empty());
}

TEST_CASE("an adaptive k without reports is warned about, once") {
  Fixture fixture(with("adaptive_k", int64_t(1)));
  for (int i = 0; i < 500; ++i) fixture.classify({1, 2});
  REQUIRE(fixture.logs.size() == 1);
  CHECK(fixture.logs[0].find("nobody reports a loss") != std::string::npos);
}

TEST_CASE("for comparison parts are ranked by chance, or withheld") {
  Fixture fixture({{"k", 0.5}, {"ranking", std::string("random")}, {"withhold", int64_t(1)}});
  std::set<std::vector<bool>> seen;
  for (int i = 0; i < 20; ++i) {
    std::vector<bool> withheld;
    for (const PartClass& one : fixture.classify({4, 3, 2, 1})) {
      CHECK(one.is_withheld == one.is_droppable);
      withheld.push_back(one.is_withheld);
    }
    seen.insert(withheld);
  }
  CHECK(seen.size() > 2);
}

TEST_CASE("modes: tcp has streams for datagrams, tcp4bit drops nothing and is coarse instead") {
  Fixture tcp({{"mode", std::string("tcp")}, {"k", 0.5}});
  CHECK(tcp.policy->is_lossy());
  CHECK(tcp.policy->channels().count == 3);
  CHECK(tcp.policy->channels().are_streams);
  CHECK(tcp.classify({2, 1})[1].is_droppable);
  Fixture coarse({{"mode", std::string("tcp4bit")}, {"k", 0.5}});
  CHECK_FALSE(coarse.policy->is_lossy());
  CHECK(coarse.policy->classifies());
  CHECK(coarse.policy->channels().count == 0);
  REQUIRE(coarse.policy->coarse() != nullptr);
  const auto classes = coarse.classify({2, 1});
  CHECK_FALSE(classes[0].is_coarse);
  CHECK(classes[1].is_coarse);
  CHECK_FALSE(classes[1].is_droppable);
}

TEST_CASE("what isn't allowed is refused in a sentence") {
  CHECK(Fixture(with("mode", std::string("sctp"))).why == "transport dgt: mode: allowed are udp, tcp and tcp4bit");
  CHECK(Fixture(with("channels", int64_t(9))).why.find("channels") != std::string::npos);
  CHECK(Fixture(with("kk", 0.5)).why.find("kk: no such option") != std::string::npos);
}

TEST_CASE("four bits: every position, every length, within half a step") {
  Fixture fixture(with("mode", std::string("tcp4bit")));
  Codec& codec = *fixture.policy->coarse();
  for (uint64_t n = 0; n < 100; ++n) {
    PartView view;
    view.length = view.tensor_length = n;
    std::vector<float> values(n), sum(n, 5);
    for (size_t i = 0; i < n; ++i) values[i] = std::sin(float(i) * 1.7f) * float(i + 1);
    Bytes encoded, decoded;
    const auto slot = codec.open_slot(view);
    REQUIRE(codec.encode(*slot, view, Bytes::copy(values.data(), n * 4), &encoded).message() == "");
    CHECK(encoded.size() == (n + 31) / 32 * 4 + (n + 1) / 2);
    REQUIRE(codec.decode(view, encoded, &decoded).message() == "");
    REQUIRE(codec.accumulate(view, encoded, sum.data()).message() == "");
    for (size_t i = 0; i < n; ++i) {
      float largest = 0;
      for (size_t j = i / 32 * 32; j < std::min<size_t>(n, i / 32 * 32 + 32); ++j)
        largest = std::max(largest, std::fabs(values[j]));
      CHECK(std::fabs(decoded.as<float>()[i] - values[i]) <= largest / 14 * 1.001f);
      CHECK(sum[i] == doctest::Approx(5 + decoded.as<float>()[i]));
    }
  }
}

TEST_CASE("four bits: the largest keeps its value, zeros stay zero, what is not finite counts as zero") {
  Fixture fixture(with("mode", std::string("tcp4bit")));
  Codec& codec = *fixture.policy->coarse();
  PartView view;
  view.length = view.tensor_length = 5;
  const float values[5] = {-7, 0, NAN, INFINITY, 7};
  Bytes encoded, decoded;
  REQUIRE(codec.encode(*codec.open_slot(view), view, Bytes::copy(values, 20), &encoded).ok());
  REQUIRE(codec.decode(view, encoded, &decoded).ok());
  const float* out = decoded.as<float>();
  CHECK(std::vector<float>(out, out + 5) == std::vector<float>{-7, 0, 0, 0, 7});
  CHECK(codec.decode(view, encoded.slice(0, 3), &decoded).message() ==
        "expected 7 bytes for 5 values of 4 bits but got 3");
}

}  // namespace
