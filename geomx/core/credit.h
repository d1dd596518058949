// How many bytes may be on their way to one peer and not acknowledged. Fixed, or, where nothing is known of the path,
// at least a given number and as many more as the path is measured to need: its rate (the largest of the last rounds in
// which something waited for credit) times its shortest round trip (of ten to twenty seconds), and a quarter, so that a
// faster path shows itself. Pure arithmetic on what a link tells it; times in microseconds.
#pragma once
#include <algorithm>
#include <cstdint>

namespace geomx {

struct CreditRule {
  uint64_t bytes = uint64_t(64) << 20;
  bool grows = false;  // with what is measured; else it is fixed
};

class Credit {
 public:
  uint64_t bytes(const CreditRule& rule) const {
    return rule.grows ? rule.bytes + uint64_t(kGain * rate() * double(min_rtt_us())) : rule.bytes;
  }
  // Something waits that more credit would let go.
  void on_blocked() { is_blocked_ = true; }
  // The first message after a time with nothing on its way.
  void on_start(uint64_t now_us) {
    begin_us_ = now_us;
    delivered_ = 0;
  }
  void on_delivered(uint64_t bytes, uint64_t sent_us, uint64_t now_us) {
    note_rtt(std::max<uint64_t>(now_us - sent_us, 1), now_us);
    delivered_ += bytes;
    const uint64_t span_us = now_us - begin_us_;
    if (span_us < min_rtt_us()) return;
    const double measured = double(delivered_) / double(span_us);
    if (is_blocked_ && ++rounds_ % kRoundsOfSpan == 0) {
      before_ = now_;
      now_ = 0;
    }
    if (is_blocked_ || measured > rate()) now_ = std::max(now_, measured);
    is_blocked_ = false;
    on_start(now_us);
  }

 private:
  static constexpr double kGain = 1.25;
  static constexpr uint32_t kRoundsOfSpan = 8;
  static constexpr uint64_t kRttSpanUs = 10'000'000, kUnknown = uint64_t(1) << 62;

  double rate() const { return std::max(now_, before_); }  // bytes a microsecond
  uint64_t min_rtt_us() const {
    const uint64_t rtt_us = std::min(rtt_now_us_, rtt_before_us_);
    return rtt_us == kUnknown ? 0 : rtt_us;
  }
  void note_rtt(uint64_t rtt_us, uint64_t now_us) {
    if (now_us - rtt_span_us_ > kRttSpanUs) {
      rtt_before_us_ = rtt_now_us_;
      rtt_now_us_ = kUnknown;
      rtt_span_us_ = now_us;
    }
    rtt_now_us_ = std::min(rtt_now_us_, rtt_us);
  }

  double now_ = 0, before_ = 0;
  uint32_t rounds_ = 0;
  uint64_t rtt_now_us_ = kUnknown, rtt_before_us_ = kUnknown, rtt_span_us_ = 0;
  uint64_t begin_us_ = 0, delivered_ = 0;
  bool is_blocked_ = false;
};

}  // namespace geomx
