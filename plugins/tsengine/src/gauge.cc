#include "gauge.h"

#include <algorithm>
#include <cmath>

namespace tsengine {
namespace {

constexpr uint64_t kSmall = 4 * 1024;  // of what was sent: latency would be measured
constexpr uint64_t kEnoughNs =
    200'000'000;  // receivers' queues would be measured, which hold acknowledgements back in bunches
constexpr double kLeast = 1000, kPerOctave = 9;

}  // namespace

double Delivered::add(uint64_t bytes, uint64_t sent_ns, uint64_t now_ns) {
  const uint64_t since_ns = std::max(sent_ns, last_ns_);
  last_ns_ = now_ns;
  bytes_ += bytes;
  busy_ns_ += now_ns > since_ns ? now_ns - since_ns : 0;
  if (busy_ns_ < kEnoughNs) return 0;
  const double rate = bytes_ < kSmall ? 0 : double(bytes_) * 1e9 / double(busy_ns_);
  bytes_ = busy_ns_ = 0;
  return rate;
}

uint8_t code_of(double rate) {
  if (rate < kLeast) return 0;
  return uint8_t(std::clamp(std::lround(std::log2(rate / kLeast) * kPerOctave) + 1, 1L, 255L));
}

double rate_of(uint8_t code) { return code == 0 ? 0 : kLeast * std::exp2((code - 1) / kPerOctave); }

}  // namespace tsengine
