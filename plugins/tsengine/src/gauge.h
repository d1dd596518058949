// What a node's link can carry, from what it did carry: the most of the recent past.
#pragma once
#include <cstdint>

namespace tsengine {

// The largest sample of the last rounds; what is older fades, so that a link that got slower is believed within a few
// rounds.
class Peak {
 public:
  void add(double rate) {
    if (rate > now_) now_ = rate;
  }
  void turn() {             // a few rounds are over
    if (now_ == 0) return;  // nothing was measured: what was known stays
    before_ = now_;
    now_ = 0;
  }
  double rate() const { return now_ > before_ ? now_ : before_; }

 private:
  double now_ = 0, before_ = 0;
};

// What was acknowledged, over the time in which anything was on its way: right for a link that is kept busy, too little
// for one that carries a message now and then, where the largest sample counts.
class Delivered {
 public:
  // Returns a rate in bytes/s now and then, else 0.
  double add(uint64_t bytes, uint64_t sent_ns, uint64_t now_ns);

 private:
  uint64_t bytes_ = 0, busy_ns_ = 0, last_ns_ = 0;
};

// A rate in one byte, within 4 %; 0: unknown.
uint8_t code_of(double rate);
double rate_of(uint8_t code);

}  // namespace tsengine
