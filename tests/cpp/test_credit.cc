// A credit that follows what is measured, over a path in numbers.
#include <doctest/doctest.h>

#include <deque>

#include "core/credit.h"

using namespace geomx;

namespace {

// Sends messages of 20 kB as credit allows over a path with one queue; acknowledgements come back after the round trip.
// Returns the credit at the end and the share of the rate that was used in the last second.
struct Path {
  Path(double rate, uint64_t round_trip) : bytes_per_us(rate), rtt_us(round_trip) {}
  double bytes_per_us;
  uint64_t rtt_us;
  Credit credit;
  CreditRule rule{256'000, true};
  uint64_t now_us = 1'000'000, free_us = 0, in_flight = 0, delivered = 0;
  struct Sent {
    uint64_t at_us, back_us;
  };
  std::deque<Sent> under_way;

  void run(uint64_t until_us, bool has_more = true) {
    constexpr uint64_t size = 20'000;
    while (now_us < until_us) {
      while (!under_way.empty() && under_way.front().back_us <= now_us) {
        in_flight -= size;
        delivered += size;
        credit.on_delivered(size, under_way.front().at_us, now_us);
        under_way.pop_front();
      }
      while (has_more) {
        if (in_flight != 0 && in_flight + size > credit.bytes(rule)) {
          credit.on_blocked();
          break;
        }
        if (in_flight == 0) credit.on_start(now_us);
        free_us = std::max(free_us, now_us) + uint64_t(double(size) / bytes_per_us);
        under_way.push_back({now_us, free_us + rtt_us});
        in_flight += size;
      }
      now_us += 100;
    }
  }
};

}  // namespace

TEST_CASE("a credit that grows fills the path, and holds little more") {
  for (const auto& [bytes_per_us, rtt_us] :
       {std::pair{1.25, uint64_t(200'000)}, {12.5, uint64_t(50'000)}, {125.0, uint64_t(100'000)}}) {
    Path path(bytes_per_us, rtt_us);
    path.run(6'000'000);
    const uint64_t before = path.delivered;
    path.run(7'000'000);
    const double product = bytes_per_us * double(rtt_us);
    CHECK(double(path.delivered - before) > 0.97 * bytes_per_us * 1e6);
    CHECK(double(path.credit.bytes(path.rule)) >= product);
    CHECK(double(path.credit.bytes(path.rule)) < 1.5 * product + 300'000);
  }
}

TEST_CASE("it follows a path that becomes slower, and keeps what it knows over a pause") {
  Path path(12.5, 100'000);
  path.run(5'000'000);
  const uint64_t fast = path.credit.bytes(path.rule);
  path.run(9'000'000, false);
  CHECK(path.credit.bytes(path.rule) == fast);
  path.bytes_per_us = 1.25;
  path.run(30'000'000);
  CHECK(path.credit.bytes(path.rule) < fast / 2);
}

TEST_CASE("what isn't bounded by credit says nothing; a fixed one stays") {
  Credit credit;
  const CreditRule fixed{1000, false}, grows{1000, true};
  credit.on_start(1'000'000);
  CHECK(credit.bytes(grows) == 1000);
  credit.on_delivered(500, 1'000'000, 1'050'000);
  CHECK(credit.bytes(fixed) == 1000);
  CHECK(credit.bytes(grows) == 1000 + 625);
}
