// The packet router's insides under given times: rates, delays, queues, losses, priorities.
#include <doctest/doctest.h>

#include "netns/emulator.h"

using namespace geomx;

namespace {

constexpr double kRate = 1e6;  // a byte a microsecond
constexpr uint64_t kDelayNs = 25'000'000;
constexpr uint64_t kPhaseNs = 1'500'000;  // by which an arrival varies: a full packet's time

WanShape two_parties(double loss = 0, double queue = 1e6) {
  WanShape shape;
  shape.up_bytes_per_s = shape.down_bytes_per_s = {kRate, kRate};
  shape.queue_bytes = {queue, queue};
  const WanPath inside, between{double(kDelayNs) / 1000, 0, loss, 1};
  shape.paths = {inside, between, between, inside};
  return shape;
}

Packet packet(size_t size, uint8_t band = 0, uint8_t mark = 0) {
  Packet made;
  made.to = 1;
  made.band = band;
  made.data.assign(size, mark);
  return made;
}

struct Out {
  Emulator& emulator;
  std::vector<uint8_t> marks;
  void run(uint64_t now_ns) {
    emulator.run(now_ns, [this](Packet&& p) { marks.push_back(p.data[0]); });
  }
};

}  // namespace

TEST_CASE("a packet takes both links' time and the delay, however late it is asked for") {
  Emulator emulator(two_parties(), false, 0);
  Out out{emulator, {}};
  for (uint8_t i = 0; i < 10; ++i) emulator.offer(0, packet(1000, 0, i));
  out.run(kDelayNs + 2'000'000 - 1);
  CHECK(out.marks.empty());
  out.run(kDelayNs + 2'000'000 + kPhaseNs);
  CHECK(out.marks.size() >= 1);
  out.run(kDelayNs + 11'000'000 - 1);
  CHECK(out.marks.size() < 10);
  out.run(kDelayNs + 11'000'000 + 2 * kPhaseNs);  // the tenth: ten times on the first link, once on the second
  CHECK(out.marks == std::vector<uint8_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(emulator.is_idle());
  CHECK(emulator.counters()[0].up_bytes == 10'000);
  CHECK(emulator.counters()[1].down_packets == 10);
}

TEST_CASE("what a queue can't hold is dropped, of what leaves last where there are priorities") {
  Emulator plain(two_parties(0, 3000), false, 0);
  Out first{plain, {}};
  for (uint8_t i = 0; i < 10; ++i) plain.offer(0, packet(1000, i == 9 ? 0 : 7, i));
  first.run(1'000'000'000);
  CHECK(first.marks == std::vector<uint8_t>{0, 1, 2, 3});  // one is being sent
  CHECK(plain.counters()[0].dropped == 6);

  Emulator ranked(two_parties(0, 3000), true, 0);
  Out second{ranked, {}};
  for (uint8_t i = 0; i < 10; ++i) ranked.offer(0, packet(1000, i == 9 ? 0 : 7, i));
  second.run(1'000'000'000);
  CHECK(second.marks == std::vector<uint8_t>{0, 9, 1, 2});
}

TEST_CASE("a full queue has room at times for who sends little, beside one who sends at just the link's rate") {
  WanShape shape = two_parties();
  shape.up_bytes_per_s = shape.down_bytes_per_s = {kRate, kRate, kRate};
  shape.queue_bytes = {1e6, 10'000, 1e6};
  shape.paths.assign(9, WanPath{double(kDelayNs) / 1000, 0, 0, 1});
  Emulator emulator(shape, false, 0);
  int bulk = 0, few = 0;
  const auto count = [&](Packet&& p) { ++(p.data[0] == 0 ? bulk : few); };
  const auto offer = [&](uint64_t when_ns, uint32_t from, uint8_t mark) {
    Packet made = packet(1500, 0, mark);
    made.from = from;
    emulator.offer(when_ns, std::move(made));
  };
  for (int i = 0; i < 20; ++i) offer(0, 2, 0);  // they fill the queue, and the link keeps their beat
  for (int i = 0; i < 8000; ++i) {
    const uint64_t when_ns = 200'000 + uint64_t(i) * 1'500'000;
    offer(when_ns, 0, 0);
    if (i % 100 == 99) offer(when_ns + 500'000, 2, 1);
    emulator.run(when_ns, count);
  }
  emulator.run(~uint64_t(0), count);
  CHECK(bulk > 7900);
  CHECK(few > 20);  // of 80; none, were all in step
}

TEST_CASE("packets are lost at the stated rate, counted, and keep their order under jitter") {
  WanShape shape = two_parties(0.05);
  shape.paths[1].jitter_us = 20'000;
  Emulator emulator(shape, false, 0);
  Out out{emulator, {}};
  for (int i = 0; i < 20'000; ++i) {
    emulator.offer(uint64_t(i) * 200'000, packet(100, 0, uint8_t(i / 200)));
    out.run(uint64_t(i) * 200'000);
  }
  out.run(100'000'000'000);
  CHECK(double(emulator.counters()[0].lost) / 20'000 == doctest::Approx(0.05).epsilon(0.1));
  CHECK(out.marks.size() + emulator.counters()[0].lost == 20'000);
  CHECK(std::is_sorted(out.marks.begin(), out.marks.end()));
}

TEST_CASE("a link has a share of its rates from a time on, others stay as they are") {
  WanShape shape = two_parties();
  shape.shares = {{0, 1'000, 0.5}, {0, 9'000, 1}};
  CHECK(shape.rate_at(999, 0, LinkSide::up) == kRate);
  CHECK(shape.rate_at(1'000, 0, LinkSide::up) == kRate / 2);
  CHECK(shape.rate_at(8'999, 0, LinkSide::down) == kRate / 2);
  CHECK(shape.rate_at(9'000, 0, LinkSide::up) == kRate);
  CHECK(shape.rate_at(5'000, 1, LinkSide::up) == kRate);
}

TEST_CASE("a trace changes rate and delay as time goes, and links without a limit take no time") {
  WanShape shape = two_parties();
  shape.trace = {{0, kRate, 1'000, 0}, {1'000'000, kRate / 10, 50'000, 0}};
  Emulator emulator(shape, false, 0);
  Out out{emulator, {}};
  emulator.offer(0, packet(1000));
  out.run(3'000'000 + kPhaseNs);
  CHECK(out.marks.size() == 1);
  emulator.offer(1'000'000'000, packet(1000));
  out.run(1'069'000'000);
  CHECK(out.marks.size() == 1);
  out.run(1'070'000'000 + 10 * kPhaseNs);  // 10 ms on each link and 50 between
  CHECK(out.marks.size() == 2);

  WanShape open = two_parties();
  open.up_bytes_per_s = open.down_bytes_per_s = {0, 0};
  Emulator free(open, false, 0);
  Out through{free, {}};
  for (int i = 0; i < 1000; ++i) free.offer(0, packet(1500));
  through.run(kDelayNs);
  CHECK(through.marks.size() == 1000);
}
