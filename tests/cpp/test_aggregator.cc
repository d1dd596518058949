// One server's aggregator, fed frame by frame: what is late, double, foreign or too far ahead, and when rounds close.
#include "core/aggregator.h"

#include <doctest/doctest.h>

#include "core/client.h"
#include "core/identity_codec.h"
#include "core/sim.h"

using namespace geomx;

namespace {

class Lossy : public TransportPolicy {
 public:
  bool is_lossy() const override { return true; }
  uint64_t deadline_us() const override { return 1000; }
};

// Gives back what it is offered at once, as a server without an optimizer does.
class Echo : public Upstream {
 public:
  void offer(uint32_t key, uint32_t part, uint32_t line, uint32_t round, Bytes sum, const MemberSet& in, int) override {
    rounds.push_back({round, line, sum.empty() ? 0 : sum.as<float>()[0], in.ranks()});
    aggregator->finish(key, part, line, std::move(sum));
  }
  Bytes allocate(uint32_t, uint32_t, size_t size) override { return Bytes::allocate(size); }
  void want(uint32_t, uint32_t) override { ++wants; }
  void initial(uint32_t key, uint32_t part, Bytes raw) override { aggregator->set_value(key, part, 0, std::move(raw)); }
  void all_left() override { has_all_left = true; }

  struct Closed {
    uint32_t round, line;
    float value;
    std::vector<uint32_t> in;
    bool operator==(const Closed& o) const {
      return round == o.round && line == o.line && value == o.value && in == o.in;
    }
  };
  std::vector<Closed> rounds;
  int wants = 0;
  bool has_all_left = false;
  Aggregator* aggregator = nullptr;
};

// Server 0 of two, three members; a key of two parts, the second is server 1's.
struct Bench {
  explicit Bench(SyncPolicy sync = {}, bool is_lossy = false, MemberSet observers = {})
      : transport(world, reactor, "server"),
        link(reactor, transport, Tier::wan, counters),
        side{reactor, link, keys, policies, counters, Tier::wan, server(0), 2, 3, 3, [this](const std::string& why) {
               failures.push_back(why);
             }} {
    REQUIRE(transport.bind("", 0).ok());
    for (uint32_t m = 0; m < 3; ++m) {
      PeerId peer;
      REQUIRE(transport.connect("member" + std::to_string(m), &peer).ok());
      link.set_peer(member(m), peer);
    }
    if (is_lossy) policies.transport = std::make_unique<Lossy>();
    KeySpec spec;
    spec.name = "k";
    spec.id = key_id("k");
    spec.shape = {4};
    spec.shards = {{0, 0, 2}, {1, 2, 2}};
    Key& key = keys.add(spec);
    for (auto& tier : key.codec)
      for (auto& codec : tier) codec = std::shared_ptr<Codec>(&identity_codec(), [](Codec*) {});
    aggregator = std::make_unique<Aggregator>(side, 3, observers, 0, sync, above);
    above.aggregator = aggregator.get();
  }
  Frame push(std::vector<uint32_t> contributors, uint32_t round, float value, uint32_t part = 0) {
    Frame frame(FrameKind::push, 0, part, round);
    frame.codec = kRawWireId;
    for (uint32_t rank : contributors) frame.contributors.insert(rank);
    const float values[2] = {value, value};
    frame.body = Bytes::copy(values, sizeof(values));
    return frame;
  }
  void take(uint32_t from, uint32_t round, float value) {
    aggregator->take_push(member(from), push({from}, round, value));
  }
  void end(uint32_t from, uint32_t round, std::vector<uint32_t> droppable) {
    Writer body;
    body.varint(policies.transport->deadline_us()).varint(droppable.size());
    for (uint32_t part : droppable) body.varint(part);
    Frame frame(FrameKind::end, 0, 0, round);
    frame.body = body.finish();
    aggregator->take_end(member(from), frame);
  }
  void leave(uint32_t from, uint32_t last_round) {
    Frame frame(FrameKind::leave);
    frame.body = Writer().varint(1).varint(0).varint(last_round).finish();
    aggregator->take_leave(member(from), frame);
  }
  uint64_t dropped() const { return counters.tier[1].dropped_parts; }
  uint64_t refused() const { return counters.tier[1].refused_frames; }

  sim::World world{1};
  sim::SimReactor reactor{world};
  Counters counters;
  Policies policies;
  KeyTable keys;
  sim::SimTransport transport;
  Link link;
  Side side;
  Echo above;
  std::unique_ptr<Aggregator> aggregator;
  std::vector<std::string> failures;
};

using Closed = Echo::Closed;

}  // namespace

TEST_CASE("a round closes when all are in, once") {
  Bench bench;
  bench.take(2, 1, 4);
  bench.take(0, 1, 1);
  CHECK(bench.above.rounds.empty());
  bench.take(1, 1, 2);
  CHECK(bench.above.rounds == std::vector<Closed>{{1, 0, 7, {0, 1, 2}}});
  CHECK_FALSE(bench.aggregator->has_open_rounds());
}

TEST_CASE("doubles and parts that come after their round are counted and dropped") {
  Bench bench;
  bench.take(0, 1, 1);
  bench.take(0, 1, 100);
  CHECK(bench.dropped() == 1);
  bench.take(1, 1, 2);
  bench.take(2, 1, 4);
  bench.take(2, 1, 100);
  CHECK(bench.dropped() == 2);
  CHECK(bench.refused() == 0);
  CHECK(bench.above.rounds == std::vector<Closed>{{1, 0, 7, {0, 1, 2}}});
}

TEST_CASE("what can't be is counted and refused") {
  Bench bench;
  bench.aggregator->take_push(member(0), bench.push({0}, 2, 1));     // a round ahead of the one that is open
  bench.aggregator->take_push(member(0), bench.push({0}, 1, 1, 1));  // server 1's part
  bench.aggregator->take_push(member(0), bench.push({0}, 1, 1, 9));  // no such part
  bench.aggregator->take_push(member(0), bench.push({}, 1, 1));      // of nobody
  bench.aggregator->take_push(member(0), bench.push({7}, 1, 1));     // of somebody unknown
  Frame unknown = bench.push({0}, 1, 1);
  unknown.key = 5;
  bench.aggregator->take_push(member(0), unknown);
  bench.aggregator->take_pull(member(0), Frame(FrameKind::pull, 5, 0, 0));
  Frame end(FrameKind::end, 5, 0, 1);
  bench.aggregator->take_end(member(0), end);
  CHECK(bench.refused() == 8);
  CHECK(bench.above.rounds.empty());
  CHECK_FALSE(bench.aggregator->has_open_rounds());
}

TEST_CASE("bytes in another format, or too few of them, end the run in a sentence") {
  Bench bench;
  Frame other = bench.push({0}, 1, 1), few = other;
  SUBCASE("format") {
    other.codec = fourcc('X', 'X', 'X', 'X');
    bench.aggregator->take_push(member(0), other);
    CHECK(bench.failures ==
          std::vector<std::string>{"key \"k\": a contribution came in a format that was not agreed on"});
  }
  SUBCASE("size") {
    few.body = few.body.slice(0, 7);
    bench.aggregator->take_push(member(0), few);
    CHECK(bench.failures ==
          std::vector<std::string>{"key \"k\": expected 8 bytes for 2 elements of float32 but got 7"});
  }
}

TEST_CASE("a merged contribution counts for all in it; one that overlaps is refused") {
  Bench bench;
  bench.aggregator->take_push(member(1), bench.push({0, 1}, 1, 3));
  bench.aggregator->take_push(member(2), bench.push({1, 2}, 1, 6));
  CHECK(bench.above.rounds.empty());
  CHECK(bench.dropped() == 0);
  bench.take(2, 1, 4);
  CHECK(bench.above.rounds == std::vector<Closed>{{1, 0, 7, {0, 1, 2}}});
}

TEST_CASE("rounds go on without who has left, and judge again what was open") {
  Bench bench;
  bench.take(0, 1, 1);
  bench.take(1, 1, 2);
  bench.leave(2, 0);
  CHECK(bench.above.rounds == std::vector<Closed>{{1, 0, 3, {0, 1}}});
  bench.take(0, 2, 1);
  bench.leave(1, 2);  // its last contribution is still on the way
  CHECK(bench.above.rounds.size() == 1);
  bench.take(1, 2, 2);
  CHECK(bench.above.rounds.back() == Closed{2, 0, 3, {0, 1}});
  CHECK_FALSE(bench.above.has_all_left);
  bench.leave(0, 2);
  CHECK(bench.above.has_all_left);
}

TEST_CASE("observers are neither waited for nor let in") {
  Bench bench({}, false, MemberSet::of(1));
  bench.take(1, 1, 100);
  CHECK(bench.refused() == 1);
  bench.take(0, 1, 1);
  bench.take(2, 1, 4);
  CHECK(bench.above.rounds == std::vector<Closed>{{1, 0, 5, {0, 2}}});
}

TEST_CASE("the order of adding is by rank where it is fixed") {
  const float tiny = 5e-8f;  // 1 + tiny is 1, but not tiny + tiny + 1
  for (bool is_fixed : {false, true}) {
    SyncPolicy sync;
    sync.is_deterministic = is_fixed;
    Bench bench(sync);
    bench.take(1, 1, tiny);
    bench.take(2, 1, tiny);
    bench.take(0, 1, 1);
    REQUIRE(bench.above.rounds.size() == 1);
    CHECK(bench.above.rounds[0].value == (is_fixed ? (1 + tiny) + tiny : (tiny + tiny) + 1));
  }
}

TEST_CASE("a round closes with holes when all ends and their deadlines are past") {
  Bench bench({}, true);
  bench.take(0, 1, 1);
  bench.end(0, 1, {0});
  bench.end(1, 1, {0});
  bench.world.run(5000);
  CHECK(bench.above.rounds.empty());  // the third hasn't ended its round
  bench.end(2, 1, {0});
  CHECK(bench.above.rounds.empty());  // nor waited for what may still come
  bench.world.run(20000);
  CHECK(bench.above.rounds == std::vector<Closed>{{1, 0, 1, {0}}});
  bench.take(1, 1, 2);
  CHECK(bench.dropped() == 1);
}

TEST_CASE("a part that may not be missing is waited for") {
  Bench bench({}, true);
  bench.take(0, 1, 1);
  bench.end(0, 1, {0});
  bench.end(1, 1, {0});
  bench.end(2, 1, {});
  bench.world.run(20000);
  CHECK(bench.above.rounds.empty());
  bench.take(2, 1, 4);
  bench.world.run(40000);
  CHECK(bench.above.rounds == std::vector<Closed>{{1, 0, 5, {0, 2}}});
}

TEST_CASE("in mixed sync everybody's rounds close by themselves, within the bound") {
  SyncPolicy sync;
  sync.is_mixed = true;
  sync.staleness = 2;
  Bench bench(sync);
  bench.take(1, 1, 1);
  bench.take(1, 2, 2);
  CHECK(bench.above.rounds == std::vector<Closed>{{1, 1, 1, {1}}, {2, 1, 2, {1}}});
  bench.take(1, 3, 3);  // two ahead of both others already
  CHECK(bench.above.rounds.size() == 2);
  bench.take(0, 1, 10);
  CHECK(bench.above.rounds.size() == 3);
  bench.take(2, 1, 20);  // the last who held it
  CHECK(bench.above.rounds.back() == Closed{3, 1, 3, {1}});
  bench.take(1, 4, 4);
  CHECK(bench.above.rounds.size() == 5);
  bench.leave(0, 1);
  CHECK(bench.above.rounds.size() == 5);
  bench.leave(2, 1);  // who has left holds nobody
  CHECK(bench.above.rounds.back() == Closed{4, 1, 4, {1}});
  bench.aggregator->take_push(member(1), bench.push({0, 1}, 5, 1));
  CHECK(bench.refused() == 1);  // nothing is merged in mixed sync
}

TEST_CASE("a pull waits for its round, and asks above where there is no value yet") {
  Bench bench;
  bench.aggregator->take_pull(member(0), Frame(FrameKind::pull, 0, 0, 0));
  bench.aggregator->take_pull(member(1), Frame(FrameKind::pull, 0, 0, 0));
  CHECK(bench.above.wants == 1);
  Frame initial(FrameKind::init, 0, 0, 0);
  initial.body = bench.push({0}, 1, 5).body;
  bench.aggregator->take_initial(initial);
  bench.aggregator->take_pull(member(2), Frame(FrameKind::pull, 0, 0, 0));
  CHECK(bench.above.wants == 1);
  bench.world.run(1000);
  const uint64_t before = bench.counters.tier[1].down_payload_bytes + bench.counters.tier[1].init_bytes;
  bench.aggregator->take_pull(member(0), Frame(FrameKind::pull, 0, 0, 1));
  bench.world.run(2000);
  CHECK(bench.counters.tier[1].down_payload_bytes + bench.counters.tier[1].init_bytes == before);
}

TEST_CASE("who is waited for is told, the longest wait first") {
  Bench bench;
  CHECK_FALSE(bench.aggregator->oldest_stall());
  bench.take(1, 1, 1);
  const auto stall = bench.aggregator->oldest_stall();
  REQUIRE(stall);
  CHECK(stall->round == 1);
  CHECK(stall->missing.ranks() == std::vector<uint32_t>{0, 2});
}
