#include "gauge.h"

#include <algorithm>
#include <cmath>

namespace tsengine {
namespace {

constexpr uint64_t kSmall = 4 * 1024;        // of what was sent: latency would be measured
constexpr uint64_t kLeastNs = 200'000'000;   // less would measure acknowledgements
constexpr uint64_t kMostNs = 1'000'000'000;  // more would not see a link get slower
constexpr uint64_t kBetweenLooksNs = 100'000'000;
constexpr uint64_t kWaitNs = 40'000'000;       // beyond the quickest: a queue, not the way
constexpr uint64_t kPauseNs = 50'000'000;      // without anything received: a new look begins
constexpr uint64_t kReceivedNs = 100'000'000;  // long against a part's time on the link
constexpr double kLeast = 1000, kPerOctave = 9;

}  // namespace

Delivered::Sample Delivered::add(uint32_t to, uint64_t bytes, uint64_t sent_ns, uint64_t now_ns) {
  if (sent_ns >= last_ns_ || since_ns_ == 0) {  // nothing else was on its way
    since_ns_ = looked_ns_ = sent_ns;
    bytes_ = 0;
    for (Receiver& receiver : to_) receiver.sum_ns = receiver.count = 0;
  }
  last_ns_ = now_ns;
  if (sent_ns >= since_ns_) bytes_ += bytes;
  const uint64_t took_ns = now_ns > sent_ns ? now_ns - sent_ns : 1;
  Receiver& receiver = to_[to];
  receiver.least_ns = receiver.least_ns == 0 ? took_ns : std::min(receiver.least_ns, took_ns);
  receiver.sum_ns += took_ns;
  ++receiver.count;
  const bool is_due = now_ns >= since_ns_ + kLeastNs && now_ns >= looked_ns_ + kBetweenLooksNs;
  return is_due ? look(now_ns) : Sample();
}

Delivered::Sample Delivered::look(uint64_t now_ns) {
  Sample sample;
  sample.bytes_per_s = bytes_ < kSmall ? 0 : double(bytes_) * 1e9 / double(now_ns - since_ns_);
  uint32_t num_receivers = 0;
  for (uint32_t to = 0; to < to_.size(); ++to) {
    Receiver& receiver = to_[to];
    if (receiver.count == 0) continue;
    ++num_receivers;
    if (receiver.sum_ns / receiver.count >= receiver.least_ns + kWaitNs) sample.waited_for.push_back(to);
    receiver.sum_ns = receiver.count = 0;
  }
  sample.is_full = num_receivers >= 2 && sample.waited_for.size() == num_receivers;
  looked_ns_ = now_ns;
  if (now_ns >= since_ns_ + kMostNs) {
    since_ns_ = now_ns;
    bytes_ = 0;
  }
  return sample;
}

// The first message marks the time from which the others' bytes count.
double Received::add(uint64_t bytes, uint64_t now_ns) {
  if (first_ns_ == 0 || now_ns > last_ns_ + kPauseNs) {
    first_ns_ = last_ns_ = now_ns;
    bytes_ = 0;
    return 0;
  }
  last_ns_ = now_ns;
  bytes_ += bytes;
  if (now_ns - first_ns_ < kReceivedNs) return 0;
  const double rate = bytes_ < kSmall ? 0 : double(bytes_) * 1e9 / double(now_ns - first_ns_);
  first_ns_ = now_ns;
  bytes_ = 0;
  return rate;
}

uint8_t code_of(double rate) {
  if (rate < kLeast) return 0;
  return uint8_t(std::clamp(std::lround(std::log2(rate / kLeast) * kPerOctave) + 1, 1L, 255L));
}

double rate_of(uint8_t code) { return code == 0 ? 0 : kLeast * std::exp2((code - 1) / kPerOctave); }

}  // namespace tsengine
