// The matchmaker's decisions, with time and rates made up.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "matchmaker.h"

namespace tsengine {
namespace {

constexpr double kRate = 5e6;  // bytes/s of a slow link
constexpr uint64_t kPart = 1'000'000;

// Plays the members: whoever is told to send, does, and whoever received, asks again.
struct Game {
  explicit Game(uint32_t n, double greed = 1, std::vector<uint8_t> reachable = {})
      : size(n),
        matchmaker(n, std::vector<uint8_t>(n, 1), reachable.empty() ? std::vector<uint8_t>(n, 1) : reachable, greed,
                   7) {}
  // Returns who sent to the server, with what.
  std::map<uint32_t, std::set<uint32_t>> round(uint32_t part, uint32_t number) {
    std::map<uint32_t, std::set<uint32_t>> holds, at_root;
    std::vector<Order> orders;
    std::vector<std::pair<uint32_t, std::set<uint32_t>>> moving;
    received.assign(size, 0);
    const auto ask = [&](uint32_t m) {
      for (const Order& order : matchmaker.ask({1, part}, number, m, {holds[m].begin(), holds[m].end()}, kPart, now_s))
        orders.push_back(order);
    };
    for (uint32_t m = 0; m < size; ++m) {
      holds[m].insert(m);
      ask(m);
      while (!orders.empty()) {
        const Order order = orders.back();
        orders.pop_back();
        REQUIRE(!holds[order.member].empty());
        std::set<uint32_t> sent;
        sent.swap(holds[order.member]);
        if (order.to == kRoot) {
          at_root[order.member] = sent;
          continue;
        }
        ++received[order.to];
        holds[order.to].insert(sent.begin(), sent.end());
        ask(order.to);
      }
    }
    return at_root;
  }
  uint32_t size;
  Matchmaker matchmaker;
  double now_s = 1;
  std::vector<uint32_t> received;
};

TEST_CASE("one sends to the server, with everybody's contribution, whatever is drawn") {
  for (double greed : {1.0, 0.9, 0.0}) {
    Game game(8, greed);
    for (uint32_t number = 1; number < 40; ++number) {
      const auto at_root = game.round(number % 5, number);
      REQUIRE(at_root.size() == 1);
      CHECK(at_root.begin()->second.size() == 8);
    }
  }
}

TEST_CASE("whoever has a slow link sends and receives once, and others do the rest") {
  Game game(8);
  for (uint32_t m = 0; m < 8; ++m) {
    game.matchmaker.rate_up(m, kRate * (1 + m));
    game.matchmaker.rate_down(m, kRate * (1 + m));
  }
  game.matchmaker.own_rate_up(kRate);
  std::vector<uint32_t> merged(8), passed(8);
  uint32_t from_root = 0;
  for (uint32_t part = 0; part < 25; ++part) {
    game.round(part, 1);
    for (uint32_t m = 0; m < 8; ++m) merged[m] += game.received[m];
  }
  for (uint32_t part = 0; part < 25; ++part) {
    const std::vector<Step> steps = game.matchmaker.route({1, part}, {0, 1, 2, 3, 4, 5, 6, 7}, kPart, game.now_s);
    REQUIRE(steps.size() == 8);
    for (size_t at = 0; at < steps.size(); at += 1 + steps[at].below) ++from_root;
    for (size_t at = 0; at < steps.size(); ++at)
      for (size_t child = at + 1; child <= at + steps[at].below; child += 1 + steps[child].below)
        ++passed[steps[at].member];
  }
  CHECK(merged[0] == 0);
  CHECK(passed[0] == 0);
  CHECK(from_root <= 27);
  // Each link's time for all that it carried, against that of the slowest for what it must.
  for (uint32_t m = 0; m < 8; ++m) {
    CHECK((25.0 + merged[m]) / (1 + m) < 25 * 1.25);
    CHECK((25.0 + passed[m]) / (1 + m) < 25 * 1.25);
  }
}

TEST_CASE("what others can't reach is sent nothing") {
  Game game(4, 0.0, {0, 1, 1, 0});
  for (uint32_t number = 1; number < 30; ++number) {
    game.round(0, number);
    CHECK(game.received[0] + game.received[3] == 0);
    const std::vector<Step> steps = game.matchmaker.route({1, 0}, {0, 1, 2, 3, 4}, kPart, game.now_s);
    CHECK(steps.front().member == 4);  // the central party
    for (size_t at = 1; at < steps.size(); at += 1 + steps[at].below)
      for (size_t under = at + 1; under <= at + steps[at].below; ++under)
        CHECK(game.matchmaker.down(steps[under].member) > 0);
  }
}

TEST_CASE("whoever left is not waited for, whoever went alone neither") {
  Matchmaker matchmaker(3, {1, 1, 1}, {1, 1, 1}, 1, 1);
  CHECK(matchmaker.ask({1, 0}, 1, 0, {0}, kPart, 1).empty());
  CHECK(matchmaker.gone({1, 0}, 1, 1, 1).empty());
  const std::vector<Order> orders = matchmaker.left(2, 1);
  REQUIRE(orders.size() == 1);
  CHECK(orders[0].member == 0);
  CHECK(orders[0].to == kRoot);
}

TEST_CASE("a way that broke isn't taken for a while") {
  Matchmaker matchmaker(2, {1, 1}, {1, 1}, 1, 1);
  matchmaker.route({1, 0}, {0, 1}, kPart, 1);
  matchmaker.missed({1, 0}, 1, 1);
  for (const Step& step : matchmaker.route({1, 0}, {0, 1}, kPart, 2)) CHECK(step.below == 0);
}

TEST_CASE("a link that got slower is believed within four rounds, one that had little to do is not") {
  for (bool is_full : {true, false}) {
    Matchmaker matchmaker(2, {1, 1}, {1, 1}, 1, 1);
    for (uint32_t round = 1; round <= 9; ++round) {
      matchmaker.ask({1, 0}, round, 0, {0}, kPart, round);
      matchmaker.rate_down(0, round <= 5 ? 100e6 : 50e6);
      if (is_full) matchmaker.full_down(0);
    }
    CHECK(matchmaker.down(0) == (is_full ? 50e6 : 100e6));
  }
}

constexpr uint64_t kMs = 1'000'000;

TEST_CASE("an uplink's rate is what must have passed it, however acknowledgements are bunched") {
  Delivered sent(3);
  double most = 0;
  for (uint64_t i = 1; i <= 20; ++i)  // all were given at once
    most = std::max(most, sent.add(0, kPart, 500 * kMs, (500 + i * 100) * kMs).bytes_per_s);
  CHECK(most == doctest::Approx(10e6));
  // Ten that left one by one, and wait for their receiver: acknowledged at once.
  Delivered bunched(3);
  most = 0;
  for (uint64_t i = 0; i < 10; ++i)
    most = std::max(most, bunched.add(0, kPart, (1000 + i) * kMs, 2000 * kMs + i).bytes_per_s);
  CHECK(most < 11e6);
}

TEST_CASE("whom others waited for is known, and an uplink is full where all receivers had to be waited for") {
  const auto last = [](std::vector<std::pair<uint32_t, uint64_t>> took_ms) {
    Delivered sent(3);
    for (uint32_t to = 0; to < 3; ++to) sent.add(to, kPart, 1000 * kMs, 1005 * kMs);
    Delivered::Sample found;
    for (const auto& [to, ms] : took_ms) {
      const Delivered::Sample sample = sent.add(to, kPart, 2000 * kMs, (2000 + ms) * kMs);
      if (sample.bytes_per_s > 0) found = sample;
    }
    return found;
  };
  CHECK(last({{0, 10}, {1, 300}}).waited_for == std::vector<uint32_t>{1});
  CHECK(!last({{0, 10}, {1, 300}}).is_full);
  CHECK(last({{0, 190}, {1, 300}}).is_full);
  CHECK(!last({{1, 190}, {1, 300}}).is_full);  // the receiver's link, or ours
}

TEST_CASE("a downlink's rate is what came through it between two messages, without pauses") {
  Received received;
  double most = 0;
  for (uint64_t i = 0; i < 20; ++i) most = std::max(most, received.add(kPart, (1000 + i * 20) * kMs));
  CHECK(most == doctest::Approx(50e6));
  Received rare;
  for (uint64_t i = 0; i < 20; ++i) CHECK(rare.add(kPart, (1000 + i * 60) * kMs) == 0);
}

TEST_CASE("rates travel in a byte") {
  for (double bytes_per_s : {2e3, 5e6, 25e6, 1e9})
    CHECK(rate_of(code_of(bytes_per_s)) == doctest::Approx(bytes_per_s).epsilon(0.05));
  CHECK(rate_of(code_of(0)) == 0);
}

}  // namespace
}  // namespace tsengine
