// See congestion.h.
#include "congestion.h"

#include <cmath>

namespace geomx {
namespace {

constexpr double kStartupGain = 2.885;  // 2 / ln 2: doubles each round trip
constexpr double kGains[] = {1.25, 0.75, 1, 1, 1, 1, 1, 1};
constexpr int kPhases = 8;
constexpr double kMuchLoss = 0.02, kLongRtt = 1.5, kRttNoiseUs = 2000, kMostCut = 0.5;
constexpr double kStanding = 1.25, kDrained = 1.15, kNearPeak = 0.8, kCut = 0.7;
constexpr int kStandingRounds = 8, kRoundsOfCut = 2;
constexpr double kDeviations = 3, kUnusualPackets = 0.5, kPeakMemory = 128;
constexpr uint64_t kContendedSpanUs = 60'000'000;
constexpr uint64_t kRoundsOfSpan = 4, kRoundsOfLossSpan = 8;
constexpr uint64_t kRttSpanUs = 10'000'000;
constexpr uint64_t kProbeRttUs = 200'000;
constexpr uint64_t kInitialPackets = 32, kLeastPackets = 4;
constexpr uint64_t kInitialRttUs = 100'000;
constexpr uint64_t kMostHostUs = 200'000;
constexpr uint64_t kHostMemory = 8;  // rounds

}  // namespace

uint64_t Congestion::product(double gain) const {
  const uint64_t rtt_us = min_rtt_us();
  if (bottleneck() == 0 || rtt_us == kUnknown) return kInitialPackets * packet_bytes_;
  return uint64_t(gain * bottleneck() * double(rtt_us) * 1e-6);
}

// What waits in hosts, beside what is on the path: a busy one takes datagrams and acknowledgements many at a time.
// Without it, the short path between two busy hosts would carry two of its products in each of their turns.
uint64_t Congestion::held(double gain) const {
  return std::min(uint64_t(gain * bottleneck() * double(std::min(host_us_, kMostHostUs)) * 1e-6), host_bytes_);
}

double Congestion::bytes_per_s() const {
  if (limit_ > 0) return std::max(limit_ * 1e6 / double(min_rtt_us()), double(packet_bytes_) * 10);
  if (bottleneck() > 0) return std::max(gain_ * bottleneck(), double(packet_bytes_) * 10);
  const uint64_t rtt_us = min_rtt_us() == kUnknown ? kInitialRttUs : std::max<uint64_t>(min_rtt_us(), 1000);
  return kStartupGain * double(kInitialPackets * packet_bytes_) / (double(rtt_us) * 1e-6);
}

// Beside two products there is room for acknowledgements that come late or several at once.
uint64_t Congestion::window() const {
  if (state_ == State::probe_rtt) return kLeastPackets * packet_bytes_;
  if (limit_ > 0) return uint64_t(limit_);
  const double gain = state_ == State::startup ? kStartupGain : 2;
  return std::max(product(gain) + held(2) + 8 * packet_bytes_, kInitialPackets * packet_bytes_);
}

void Congestion::on_ack(const RateSample& sample, uint64_t in_flight, uint64_t now_us) {
  is_new_round_ = sample.delivered_at_sending >= round_end_;
  if (is_new_round_) {
    round_end_ = sample.delivered;
    ++rounds_;
  }
  if (sample.rtt_us != 0) note_rtt(sample.rtt_us, now_us);
  note_rate(sample);
  if (sample.rtt_us != 0) {
    longest_rtt_us_ = std::max(longest_rtt_us_, sample.rtt_us);
    shortest_rtt_us_ = std::min(shortest_rtt_us_, sample.rtt_us);
  }
  round_rate_ = std::max(round_rate_, sample.bytes_per_s);
  round_host_us_ = std::max(round_host_us_, sample.host_us);
  if (is_new_round_) end_round(sample, in_flight, now_us);
  if (state_ == State::startup) judge_startup(sample);
  if (state_ == State::drain && in_flight <= product(1) + held(1)) {
    state_ = State::probe_rate;
    phase_ = 2;
    phase_us_ = now_us;
  }
  if (state_ == State::probe_rate) cycle(in_flight, now_us);
  judge_probe_rtt(in_flight, now_us);
}

void Congestion::on_restart(uint64_t now_us) {
  idle_us_ = now_us;
  if (state_ != State::probe_rate) return;
  phase_ = 0;  // short bursts would never come to it otherwise
  phase_us_ = now_us;
  gain_ = kGains[phase_];
}

void Congestion::note_rtt(uint64_t rtt_us, uint64_t now_us) {
  if (rtt_span_us_ == 0) rtt_span_us_ = now_us;
  // Beside others the path isn't seen empty.
  if (now_us - rtt_span_us_ > (limit_ > 0 ? kContendedSpanUs : kRttSpanUs)) {
    rtt_before_us_ = rtt_now_us_;
    rtt_now_us_ = kUnknown;
    rtt_span_us_ = now_us;
  }
  rtt_now_us_ = std::min(rtt_now_us_, rtt_us);
}

// What the application didn't fill, or we by our own choice, says nothing about the path, unless it is more than was
// known. On a short path a pause of ours is many round trips, after which nothing else would be remembered.
void Congestion::note_rate(const RateSample& sample) {
  const bool is_path_full = !sample.is_app_limited && state_ != State::drain && state_ != State::probe_rtt;
  if (rounds_ - rate_round_ >= kRoundsOfSpan && is_path_full) {
    rate_round_ = rounds_;
    rates_[2] = rates_[1];
    rates_[1] = rates_[0];
    rates_[0] = 0;
  }
  if (is_path_full || sample.bytes_per_s > bottleneck()) rates_[0] = std::max(rates_[0], sample.bytes_per_s);
}

void Congestion::end_round(const RateSample& sample, uint64_t in_flight, uint64_t now_us) {
  const double lost = double(sample.lost - lost_before_), delivered = double(sample.delivered - delivered_before_);
  lost_before_ = sample.lost;
  delivered_before_ = sample.delivered;
  judge_contention(in_flight);
  if (state_ == State::probe_rate) note_loss(lost, delivered);
  if (limit_ > 0)
    adjust_limit(lost, delivered, sample.is_app_limited);
  else
    judge_loss(lost, delivered, now_us);
  longest_rtt_us_ = 0;
  shortest_rtt_us_ = kUnknown;
  round_rate_ = 0;
  host_us_ = std::max(round_host_us_, host_us_ - host_us_ / kHostMemory);
  round_host_us_ = 0;
}

void Congestion::judge_loss(double lost, double delivered, uint64_t now_us) {
  const double got_through = round_rate_;
  const bool is_queue_full = double(longest_rtt_us_) > kLongRtt * double(min_rtt_us()) + kRttNoiseUs;
  if (!is_queue_full || lost <= kMuchLoss * (lost + delivered) || got_through == 0) return;
  if (state_ == State::startup) {  // it was our own haste
    state_ = State::drain;
    gain_ = 1 / kStartupGain;
    return;
  }
  const double rate = std::max(got_through, kMostCut * bottleneck());
  for (double& known : rates_) known = std::min(known, rate);
  phase_ = 2;
  phase_us_ = now_us;
}

// Our own queue drains in each cycle of the rate; one that stands for longer is others'.
void Congestion::judge_contention(uint64_t in_flight) {
  if (shortest_rtt_us_ == kUnknown || state_ == State::startup || state_ == State::drain) return;
  const double shortest = double(shortest_rtt_us_), least = double(min_rtt_us());
  if (limit_ > 0 && shortest < kDrained * least + kRttNoiseUs) {
    limit_ = 0;
    standing_rounds_ = 0;
    return;
  }
  standing_rounds_ = shortest > kStanding * least + kRttNoiseUs ? standing_rounds_ + 1 : 0;
  if (limit_ > 0 || standing_rounds_ < kStandingRounds) return;
  limit_ = double(std::max(in_flight, kInitialPackets * packet_bytes_));
  peak_rtt_us_ = longest_rtt_us_;
  rounds_since_cut_ = 0;
}

// What a queue drops when it overflows comes at once; what is usual is lost in most spans. So of some spans' shares the
// third smallest counts.
void Congestion::note_loss(double lost, double delivered) {
  span_lost_ += lost;
  span_sent_ += lost + delivered;
  if (++span_rounds_ < kRoundsOfLossSpan || span_sent_ == 0) return;
  losses_[num_losses_++ % kLossSpans] = span_lost_ / span_sent_;
  span_lost_ = span_sent_ = 0;
  span_rounds_ = 0;
  const size_t known = std::min(num_losses_, kLossSpans);
  std::array<double, kLossSpans> sorted = losses_;
  std::sort(sorted.begin(), sorted.begin() + long(known));
  usual_loss_ = sorted[known / 4];
}

void Congestion::adjust_limit(double lost, double delivered, bool is_app_limited) {
  const double least = double(min_rtt_us()), packet = double(packet_bytes_);
  peak_rtt_us_ = std::max(peak_rtt_us_ - uint64_t((double(peak_rtt_us_) - least) / kPeakMemory), longest_rtt_us_);
  const bool is_long = double(longest_rtt_us_) > least + kNearPeak * (double(peak_rtt_us_) - least);
  const double usual = usual_loss_ * (lost + delivered) / packet;
  const bool is_unusual = lost / packet > usual + kDeviations * std::sqrt(usual) + kUnusualPackets;
  ++rounds_since_cut_;
  if (is_long && is_unusual) {
    if (rounds_since_cut_ < kRoundsOfCut) return;
    rounds_since_cut_ = 0;
    limit_ = std::max(kCut * limit_, double(kLeastPackets) * packet);
    return;
  }
  if (!is_app_limited) limit_ += packet;
}

// Three round trips without a quarter more: the pipe is full.
void Congestion::judge_startup(const RateSample& sample) {
  gain_ = kStartupGain;
  if (!is_new_round_ || sample.is_app_limited) return;
  if (bottleneck() >= full_rate_ * 1.25) {
    full_rate_ = bottleneck();
    full_rounds_ = 0;
    return;
  }
  if (++full_rounds_ < 3) return;
  state_ = State::drain;
  gain_ = 1 / kStartupGain;
}

void Congestion::cycle(uint64_t in_flight, uint64_t now_us) {
  const bool is_over = now_us - phase_us_ > min_rtt_us();
  const bool is_probed = kGains[phase_] <= 1 || in_flight >= product(kGains[phase_]);
  const bool is_drained = kGains[phase_] < 1 && in_flight <= product(1) + held(1);
  if ((is_over && is_probed) || is_drained) {
    phase_ = (phase_ + 1) % kPhases;
    phase_us_ = now_us;
  }
  gain_ = kGains[phase_];
}

// A flow that never pauses doesn't see the path without its own queue: every ten seconds it pauses.
void Congestion::judge_probe_rtt(uint64_t in_flight, uint64_t now_us) {
  if (state_ == State::probe_rtt) {
    if (probe_rtt_end_us_ == 0 && in_flight <= kLeastPackets * packet_bytes_) probe_rtt_end_us_ = now_us + kProbeRttUs;
    if (probe_rtt_end_us_ == 0 || now_us < probe_rtt_end_us_) return;
    state_ = State::probe_rate;
    idle_us_ = now_us;
    phase_ = 2;
    phase_us_ = now_us;
    gain_ = 1;
    return;
  }
  if (idle_us_ == 0) idle_us_ = now_us;
  if (state_ != State::probe_rate || limit_ > 0 || now_us - idle_us_ < kRttSpanUs) return;
  state_ = State::probe_rtt;
  probe_rtt_end_us_ = 0;
  gain_ = 1;
}

}  // namespace geomx
