// What waits to leave for one peer: control in order; frames of parts by rank, on lossy channels with a deadline; and
// what trails behind the lossy frames that were given before it. Knows neither credit nor messages: the link says when
// the next one leaves.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "wire.h"

namespace geomx {

class SendQueue {
 public:
  struct Queued {
    int64_t rank;
    uint64_t order;
    Frame frame;
    uint64_t wait_us = 0, deadline_us = 0;  // 0: it waits for ever
    int64_t since_ns = 0;                   // for a trace; 0: none
    // For heaps: whoever leaves later is less.
    bool operator<(const Queued& other) const { return rank != other.rank ? rank < other.rank : order > other.order; }
  };
  using Heap = std::vector<Queued>;  // the first leaves first

  void push_urgent(Frame frame) { urgent_.push_back(std::move(frame)); }
  // Channel 0 is reliable. wait_us: after which it is dropped, from when it might first have left (0: never).
  void push_ranked(uint8_t channel, Frame frame, int64_t rank, uint64_t wait_us, int64_t since_ns);
  void push_trailing(Frame frame) { trailing_.push_back(Queued{0, next_order_++, std::move(frame)}); }

  bool has_urgent() const { return !urgent_.empty(); }
  bool has_ranked() const { return !ranked_.empty(); }
  bool has_lossy() const { return !lossy_orders_.empty(); }
  bool is_empty() const { return !has_urgent() && !has_ranked() && !has_lossy() && trailing_.empty(); }

  std::vector<Frame> take_urgent() { return std::exchange(urgent_, {}); }
  const Heap& ranked() const { return ranked_; }
  const std::map<uint8_t, Heap>& lossy() const { return lossy_; }  // by channel
  Queued pop(uint8_t channel);
  // False: there is none, or lossy frames are still before it.
  bool pop_trailing(Frame* frame);

  // What is on lossy channels might leave now.
  void start_waits(uint64_t now_us);
  void drop_late(uint64_t now_us, const std::function<void(const Frame&)>& on_dropped);
  // No wait ends before; 0: none. Frames that left meanwhile may make it too early, until drop_late() has looked.
  uint64_t first_deadline_us() const { return first_deadline_us_; }

 private:
  void note_deadline(const Queued& queued);

  std::vector<Frame> urgent_;
  Heap ranked_;
  std::map<uint8_t, Heap> lossy_;
  std::set<uint64_t> lossy_orders_;  // of the frames in it
  bool has_new_lossy_ = false;       // some whose wait has not begun
  uint64_t first_deadline_us_ = 0;
  std::deque<Queued> trailing_;
  uint64_t next_order_ = 0;
};

}  // namespace geomx
