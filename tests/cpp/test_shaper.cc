// The user-space WAN under virtual time: when messages arrive, in which order, and which don't.
#include <doctest/doctest.h>
#include <unistd.h>

#include "core/shaper.h"
#include "core/sim.h"

using namespace geomx;
using geomx::sim::Faults;
using geomx::sim::SimReactor;
using geomx::sim::SimTransport;
using geomx::sim::World;

namespace {

constexpr double kRate = 1e6;  // bytes a second: a byte a microsecond
constexpr uint64_t kDelay = 25'000;

WanShape two_parties(double up = kRate, double down = kRate, double loss = 0) {
  WanShape shape;
  shape.up_bytes_per_s = {up, up};
  shape.down_bytes_per_s = {down, down};
  shape.queue_bytes = {20'000, 20'000};
  const WanPath inside, between{kDelay, 0, loss, 1};
  shape.paths = {inside, between, between, inside};
  return shape;
}

struct Site {
  SimReactor reactor;
  std::unique_ptr<Shaper> transport;
  std::vector<std::pair<uint64_t, std::string>> arrived;  // when, head
  PeerId last_from = 0;

  Site(World& world, const std::string& name, uint32_t party, WanShape shape, const std::shared_ptr<WanLinks>& links)
      : reactor(world) {
    shape.party = party;
    transport =
        std::make_unique<Shaper>(reactor, std::make_unique<SimTransport>(world, reactor, name, 1400), shape, links);
    transport->receive(
        [this, &world](PeerId from, uint8_t, Message message) {
          last_from = from;
          arrived.emplace_back(world.now_us(), std::string(message.head.text()));
        },
        nullptr, nullptr);
    REQUIRE(transport->bind("", 0).ok());
  }
  PeerId connect(const std::string& to) {
    PeerId peer = 0;
    REQUIRE(transport->connect(to, &peer).ok());
    return peer;
  }
  void send(PeerId to, const std::string& head, size_t size, uint8_t channel = 0) {
    Message message;
    message.head = Bytes::copy(head);
    if (size > head.size()) message.attachments.push_back(Bytes::allocate(size - head.size()));
    transport->send(to, channel, std::move(message));
  }
};

World quiet_world() {
  Faults faults;
  faults.min_delay_us = faults.max_delay_us = 0;
  return World(1, faults);
}

}  // namespace

TEST_CASE("a message takes its bytes' time and the delay, once, though it passes two links") {
  World world = quiet_world();
  const auto links = WanLinks::make(2, 0);
  Site a(world, "a", 0, two_parties(), links), b(world, "b", 1, two_parties(), links);
  const PeerId to_b = a.connect("b");
  const double wire = Shaper::stream_bytes(14'480);
  CHECK(wire == 14'480 + 10 * 52);
  for (int i = 0; i < 3; ++i) a.send(to_b, std::to_string(i), 14'480);
  world.run(10'000'000);
  REQUIRE(b.arrived.size() == 3);
  for (int i = 0; i < 3; ++i) {
    CHECK(b.arrived[i].second == std::to_string(i));
    CHECK(double(b.arrived[i].first) == doctest::Approx(kDelay + wire * (i + 1)).epsilon(0.001));
  }
}

TEST_CASE("what is behind a slow link waits there, whichever side it is on") {
  for (const bool is_up_slow : {true, false}) {
    World world = quiet_world();
    const auto links = WanLinks::make(2, 0);
    const WanShape shape = is_up_slow ? two_parties(kRate / 4, kRate) : two_parties(kRate, kRate / 4);
    Site a(world, "a", 0, shape, links), b(world, "b", 1, shape, links);
    const PeerId to_b = a.connect("b");
    a.send(to_b, "x", 14'480);
    world.run(10'000'000);
    REQUIRE(b.arrived.size() == 1);
    CHECK(double(b.arrived[0].first) == doctest::Approx(kDelay + 4 * Shaper::stream_bytes(14'480)).epsilon(0.001));
  }
}

TEST_CASE("nodes of one party share its link, and don't feel it among themselves") {
  World world = quiet_world();
  const auto links = WanLinks::make(2, 0);
  Site a(world, "a", 0, two_parties(), links), neighbour(world, "n", 0, two_parties(), links),
      b(world, "b", 1, two_parties(), links);
  const PeerId a_to_b = a.connect("b"), n_to_b = neighbour.connect("b");
  a.send(a_to_b, "first", 14'480);
  neighbour.send(n_to_b, "second", 14'480);
  const PeerId a_to_n = a.connect("n");
  neighbour.send(neighbour.connect("a"), "hello", 100);
  world.run(10'000'000);
  REQUIRE(b.arrived.size() == 2);
  CHECK(b.arrived[1].first >= kDelay + uint64_t(2 * Shaper::stream_bytes(14'480)));
  REQUIRE(a.arrived.size() == 1);
  CHECK(a.arrived[0].first < 1000);
  const uint64_t now = world.now_us(), busy = links->busy_until_us(0, LinkSide::up);
  a.send(a_to_n, "inside", 14'480);
  world.run(20'000'000);
  REQUIRE(neighbour.arrived.size() == 1);
  CHECK(neighbour.arrived[0].first == now);
  CHECK(links->busy_until_us(0, LinkSide::up) == busy);
}

TEST_CASE("datagrams are lost at the stated rate, and where a queue is full; streams are not") {
  World world = quiet_world();
  const auto links = WanLinks::make(2, 0);
  Site a(world, "a", 0, two_parties(kRate, kRate, 0.1), links), b(world, "b", 1, two_parties(kRate, kRate, 0.1), links);
  const PeerId to_b = a.connect("b");
  for (int i = 0; i < 10'000; ++i) {
    a.send(to_b, "d", 100, 1);
    world.run(world.now_us() + 1000);
    world.schedule(world.now_us() + 1000, [] {});
    world.step();
  }
  world.run(100'000'000);
  CHECK(double(b.arrived.size()) / 10'000 == doctest::Approx(0.9).epsilon(0.02));
  b.arrived.clear();
  for (int i = 0; i < 100; ++i) a.send(to_b, "s", 100, 0);
  world.run(200'000'000);
  CHECK(b.arrived.size() == 100);

  World other = quiet_world();
  const auto own = WanLinks::make(2, 0);
  Site c(other, "c", 0, two_parties(), own), d(other, "d", 1, two_parties(), own);
  const PeerId to_d = c.connect("d");
  for (int i = 0; i < 100; ++i) c.send(to_d, "d", 972, 1);  // 1,000 bytes each on the wire, 20,000 fit
  other.run(10'000'000);
  CHECK(d.arrived.size() == 20);
  CHECK(c.transport->max_datagram(0) < 1400);
}

TEST_CASE("where there are lossy channels its room follows the link's backlog, and who found none is told") {
  World world = quiet_world();
  const auto links = WanLinks::make(2, 0);
  Site a(world, "a", 0, two_parties(), links), b(world, "b", 1, two_parties(), links);
  const PeerId to_b = a.connect("b");
  int told = 0;
  a.transport->on_room([&](PeerId peer) { told += peer == to_b; });
  CHECK(a.transport->room(to_b, 1) > 9000);
  int sent = 0;
  for (; a.transport->room(to_b, 1) > 0 && sent < 100; ++sent) a.send(to_b, "d", 972, 1);
  CHECK(sent == 10);  // 1,000 bytes each, a millisecond each: ten milliseconds' worth
  CHECK(a.transport->room(to_b, 1) == 0);
  CHECK(told == 0);
  world.run(10'000'000);
  CHECK(told == 1);
  CHECK(a.transport->room(to_b, 1) > 9000);
  CHECK(b.arrived.size() == 10);  // none met a full queue
}

TEST_CASE("acknowledgements of a stream take their share of the way back") {
  World world = quiet_world();
  const auto links = WanLinks::make(2, 0);
  Site a(world, "a", 0, two_parties(), links), b(world, "b", 1, two_parties(), links);
  a.send(a.connect("b"), "x", 144'800);
  world.run(10'000'000);
  REQUIRE(b.arrived.size() == 1);
  const uint64_t begun = kDelay;  // when they begin: with the first byte
  CHECK(links->busy_until_us(1, LinkSide::up) == doctest::Approx(begun + 50 * 52).epsilon(0.01));
  CHECK(links->busy_until_us(0, LinkSide::down) == doctest::Approx(begun + 50 * 52).epsilon(0.01));
}

TEST_CASE("losses come in bursts of the stated length") {
  LossProcess process;
  std::mt19937_64 random(3);
  int lost = 0, bursts = 0;
  bool was_lost = false;
  for (int i = 0; i < 200'000; ++i) {
    const bool is_lost = process.is_lost(0.02, 5, random);
    lost += is_lost;
    bursts += is_lost && !was_lost;
    was_lost = is_lost;
  }
  CHECK(lost / 200'000.0 == doctest::Approx(0.02).epsilon(0.1));
  CHECK(double(lost) / bursts == doctest::Approx(5).epsilon(0.1));
}

TEST_CASE("jitter doesn't reorder a stream, a trace changes it, and a stranger's message is refused") {
  World world = quiet_world();
  const auto links = WanLinks::make(2, 0);
  WanShape shape = two_parties();
  shape.paths[1].jitter_us = shape.paths[2].jitter_us = 20'000;
  Site a(world, "a", 0, shape, links), b(world, "b", 1, shape, links);
  const PeerId to_b = a.connect("b");
  for (int i = 0; i < 50; ++i) a.send(to_b, std::string(1, char('0' + i)), 10);
  world.run(10'000'000);
  REQUIRE(b.arrived.size() == 50);
  for (int i = 0; i < 50; ++i) CHECK(b.arrived[i].second[0] == char('0' + i));

  World other = quiet_world();
  const auto own = WanLinks::make(2, 0);
  shape.trace = {{0, kRate, 5'000, 0}, {1'000'000, kRate, 300'000, 0}};
  CHECK(shape.row_at(0)->delay_us == 5'000);
  CHECK(shape.row_at(2'000'000)->delay_us == 300'000);
  shape.paths[1].jitter_us = 0;
  Site c(other, "c", 0, shape, own), d(other, "d", 1, shape, own);
  const PeerId to_d = c.connect("d");
  c.send(to_d, "early", 10);
  other.run(900'000);
  other.schedule(1'500'000, [] {});
  other.run(1'500'000);
  c.send(to_d, "late", 10);
  other.run(10'000'000);
  REQUIRE(d.arrived.size() == 2);
  CHECK(d.arrived[0].first < 10'000);
  CHECK(d.arrived[1].first >= 1'800'000);
}

TEST_CASE("the links' file: made once, opened by others, refused where it isn't one") {
  const std::string file = "/tmp/geomx-test-links-" + std::to_string(getpid());
  REQUIRE(WanLinks::create(file, 3, 77).ok());
  CHECK(!WanLinks::create(file, 3, 77).ok());
  std::shared_ptr<WanLinks> one, two;
  REQUIRE(WanLinks::open(file, 3, &one).ok());
  REQUIRE(WanLinks::open(file, 3, &two).ok());
  CHECK(one->origin_us() == 77);
  CHECK(one->take(2, LinkSide::down, 100, 50, 1e6).end_us == 150);
  CHECK(two->take(2, LinkSide::down, 100, 50, 1e6).begin_us == 150);
  CHECK(!WanLinks::open(file, 4, &one).ok());
  unlink(file.c_str());
  const Status gone = WanLinks::open(file, 3, &one);
  CHECK(gone.message().find("all nodes must be on the launcher's host") != std::string::npos);
}
