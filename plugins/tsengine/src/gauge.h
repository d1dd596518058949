// What a node's links can carry, from what they did carry.
//
// A link that had little to do carried little: that says nothing about what it can. So a rate rises at once by whatever
// was more, and falls only where messages waited for the link.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tsengine {

// The largest rate of the last two to four rounds; of earlier ones too, as long as the link wasn't full.
class Peak {
 public:
  void add(double rate) {
    if (rate > now_) now_ = rate;
  }
  void mark_full() { was_full_ = true; }
  void turn() {             // two rounds are over
    if (now_ == 0) return;  // nothing was measured: what was known stays
    before_ = was_full_ || now_ > before_ ? now_ : before_;
    now_ = 0;
    was_full_ = false;
  }
  double rate() const { return now_ > before_ ? now_ : before_; }

 private:
  double now_ = 0, before_ = 0;
  bool was_full_ = false;
};
constexpr uint32_t kRoundsOfAPeak = 2;

// A sender's view. All that was sent after a time and acknowledged by another has passed its uplink in between: so much
// the uplink carries at least. And how long receivers had to be waited for.
class Delivered {
 public:
  explicit Delivered(size_t num_receivers) : to_(num_receivers) {}

  struct Sample {
    double bytes_per_s = 0;            // 0: not yet
    bool is_full = false;              // several were sent to and all had to wait: our uplink is what they waited for
    std::vector<uint32_t> waited_for;  // receivers that had to be waited for
  };
  Sample add(uint32_t to, uint64_t bytes, uint64_t sent_ns, uint64_t now_ns);

 private:
  struct Receiver {
    uint64_t least_ns = 0;  // ever: without waiting
    uint64_t sum_ns = 0, count = 0;
  };
  Sample look(uint64_t now_ns);

  std::vector<Receiver> to_;
  uint64_t bytes_ = 0, since_ns_ = 0, last_ns_ = 0, looked_ns_ = 0;
};

// A receiver's view: the least that its downlink must be able to carry.
class Received {
 public:
  double add(uint64_t bytes, uint64_t now_ns);  // bytes/s now and then, else 0

 private:
  uint64_t bytes_ = 0, first_ns_ = 0, last_ns_ = 0;
};

// A rate in one byte, within 4 %; 0: unknown.
uint8_t code_of(double rate);
double rate_of(uint8_t code);

}  // namespace tsengine
