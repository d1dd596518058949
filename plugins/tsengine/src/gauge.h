// What a node's link can carry, from what it did carry: the most of the recent past.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

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

// Delivery rate as congestion control measures it (Cardwell et al., BBR, 2016): what was acknowledged while a message
// was on its way, over how long that was. Right for one message on an idle link and for many on a busy one.
class Delivered {
 public:
  // Returns the rate in bytes/s, or 0 where the message is too small or too quick to tell.
  double add(uint64_t bytes, uint64_t sent_ns, uint64_t now_ns);

 private:
  struct Mark {
    uint64_t at_ns, total;
  };
  std::deque<Mark> marks_;
  uint64_t total_ = 0, base_ = 0;  // base_: before the first mark
};

// A rate in one byte, within 4 %; 0: unknown.
uint8_t code_of(double rate);
double rate_of(uint8_t code);

}  // namespace tsengine
