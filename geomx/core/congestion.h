// How fast a flow may send, after BBR (Cardwell et al. 2017): it measures the bottleneck's rate and the path's round
// trip, and sends at that rate with about two of their products under way. Loss by itself changes nothing, so random
// loss doesn't collapse it; loss while the round trip is long is a full queue, and then what gets through at that
// moment is all that there is for this flow.
//
// A queue that doesn't drain for a while, though this flow lets it, is others': they fill it until packets are lost,
// and would get next to nothing beside two products of ours. Then what is under way has a limit as theirs: a packet
// more each round trip, 0.7 of it when the queue overflows, which is more loss than is usual here while the round trip
// is longest. Pure arithmetic on what its owner tells it; no clock, no packets.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace geomx {

// What an acknowledgement tells about the path.
struct RateSample {
  double bytes_per_s = 0;  // 0: nothing can be said
  bool is_app_limited = false;
  uint64_t rtt_us = 0;                // of the path alone; 0: not known
  uint64_t host_us = 0;               // that the packet and its acknowledgement waited in hosts beside
  uint64_t delivered = 0;             // bytes, ever
  uint64_t lost = 0;                  // bytes, ever
  uint64_t delivered_at_sending = 0;  // of the packet that was acknowledged
};

class Congestion {
 public:
  explicit Congestion(uint64_t packet_bytes) : packet_bytes_(packet_bytes) {}
  void set_packet_bytes(uint64_t bytes) { packet_bytes_ = bytes; }
  // What may wait in the other host at most.
  void set_host_bytes(uint64_t bytes) { host_bytes_ = bytes; }

  void on_ack(const RateSample& sample, uint64_t in_flight, uint64_t now_us);
  // The sender starts again after a time with nothing under way.
  void on_restart(uint64_t now_us);
  double bytes_per_s() const;  // to send at
  uint64_t window() const;     // bytes under way at most
  uint64_t min_rtt_us() const { return std::min(rtt_now_us_, rtt_before_us_); }
  bool is_beside_others() const { return limit_ > 0; }
  double bottleneck() const { return std::max({rates_[0], rates_[1], rates_[2]}); }

 private:
  enum class State { startup, drain, probe_rate, probe_rtt };
  void note_rtt(uint64_t rtt_us, uint64_t now_us);
  void note_rate(const RateSample& sample);
  void end_round(const RateSample& sample, uint64_t in_flight, uint64_t now_us);
  void judge_loss(double lost, double delivered, uint64_t now_us);
  void judge_contention(uint64_t in_flight);
  void note_loss(double lost, double delivered);
  void adjust_limit(double lost, double delivered, bool is_app_limited);
  void judge_startup(const RateSample& sample);
  void cycle(uint64_t in_flight, uint64_t now_us);
  void judge_probe_rtt(uint64_t in_flight, uint64_t now_us);
  uint64_t product(double gain) const;
  uint64_t held(double gain) const;

  uint64_t packet_bytes_;
  State state_ = State::startup;
  double gain_ = 2.885;
  // The largest rate of about ten round trips, in three spans.
  double rates_[3] = {0, 0, 0};
  uint64_t rate_round_ = 0;
  uint64_t rounds_ = 0, round_end_ = 0;
  bool is_new_round_ = false;
  uint64_t delivered_before_ = 0, lost_before_ = 0;           // when the round began
  uint64_t longest_rtt_us_ = 0, shortest_rtt_us_ = kUnknown;  // of the round
  double round_rate_ = 0;                                     // the largest of the round
  uint64_t host_us_ = 0, round_host_us_ = 0;                  // the longest of some rounds, of the round
  uint64_t host_bytes_ = 128 * 1024;
  // Beside others.
  double limit_ = 0;  // bytes under way; 0: none, the queue drains
  int standing_rounds_ = 0, rounds_since_cut_ = 0;
  uint64_t peak_rtt_us_ = 0;
  static constexpr size_t kLossSpans = 9;
  std::array<double, kLossSpans> losses_ = {};  // shares of the last spans
  size_t num_losses_ = 0;
  uint64_t span_rounds_ = 0;
  double span_lost_ = 0, span_sent_ = 0, usual_loss_ = 0;
  double full_rate_ = 0;
  int full_rounds_ = 0;
  // The smallest round trip of ten to twenty seconds, in two spans.
  uint64_t rtt_now_us_ = kUnknown, rtt_before_us_ = kUnknown, rtt_span_us_ = 0;
  uint64_t idle_us_ = 0;  // when the queue on the path was last ours to see empty
  uint64_t probe_rtt_end_us_ = 0;
  int phase_ = 0;
  uint64_t phase_us_ = 0;
  static constexpr uint64_t kUnknown = ~uint64_t(0);
};

}  // namespace geomx
