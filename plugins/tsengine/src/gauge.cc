#include "gauge.h"

#include <algorithm>
#include <cmath>

namespace tsengine {
namespace {

constexpr uint64_t kSmall = 4 * 1024;     // of a message: latency would be measured
constexpr uint64_t kShortNs = 1'000'000;  // the clock's grain and a busy loop would be measured
constexpr uint64_t kHistoryNs = 30'000'000'000;
constexpr double kLeast = 1000, kPerOctave = 9;

}  // namespace

double Delivered::add(uint64_t bytes, uint64_t sent_ns, uint64_t now_ns) {
  total_ += bytes;
  uint64_t before = base_;
  for (auto mark = marks_.rbegin(); mark != marks_.rend(); ++mark) {
    if (mark->at_ns > sent_ns) continue;
    before = mark->total;
    break;
  }
  marks_.push_back({now_ns, total_});
  while (marks_.size() > 4096 || marks_.front().at_ns + kHistoryNs < now_ns) {
    base_ = marks_.front().total;
    marks_.pop_front();
  }
  if (bytes < kSmall || now_ns < sent_ns + kShortNs) return 0;
  return double(total_ - before) * 1e9 / double(now_ns - sent_ns);
}

uint8_t code_of(double rate) {
  if (rate < kLeast) return 0;
  return uint8_t(std::clamp(std::lround(std::log2(rate / kLeast) * kPerOctave) + 1, 1L, 255L));
}

double rate_of(uint8_t code) { return code == 0 ? 0 : kLeast * std::exp2((code - 1) / kPerOctave); }

}  // namespace tsengine
