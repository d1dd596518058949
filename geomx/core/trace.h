// Spans of one node's work in a window of rounds: what a timeline is made of. So many in a run and no more: what comes
// then is counted and dropped. Somebody takes them now and then. Off it costs a comparison. Lives on the node's
// reactor. Times are CLOCK_MONOTONIC's, the same for all processes of a host.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "codec.h"

namespace geomx {

enum class TraceKind : uint8_t {
  encode,   // codec: values -> bytes
  queue,    // from being queued for a peer to leaving
  receive,  // a moment: the part is here
  merge,    // decoded and added to the round's sum
  open,     // a round's part, from its first contribution to its close
  update,   // the optimizer's step
  decode,   // an answer, into values
};

struct TraceEvent {
  TraceKind kind = TraceKind::encode;
  Tier tier = Tier::lan;
  Direction direction = Direction::up;
  uint32_t peer = 0xffffffff;  // NodeId::packed() of who it goes to or comes from
  uint32_t key = 0, part = 0, round = 0;
  int64_t begin_ns = 0, end_ns = 0;
};

class Trace {
 public:
  // Rounds first..last, `capacity` spans in all; last 0: off.
  void set(uint32_t first, uint32_t last, size_t capacity) {
    first_ = first;
    last_ = last;
    capacity_ = capacity;
    events_.reserve(last ? std::min(capacity, size_t(4096)) : 0);
  }
  bool covers(uint32_t round) const { return round <= last_ && round >= first_; }
  void add(const TraceEvent& event) {
    if (num_taken_ + events_.size() < capacity_)
      events_.push_back(event);
    else
      ++num_dropped_;
  }
  std::vector<TraceEvent> take() {
    std::vector<TraceEvent> taken = events_;
    num_taken_ += taken.size();
    events_.clear();  // its memory stays
    return taken;
  }
  uint64_t num_dropped() const { return num_dropped_; }
  static int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

 private:
  uint32_t first_ = 1, last_ = 0;
  size_t capacity_ = 0;
  std::vector<TraceEvent> events_;
  uint64_t num_taken_ = 0, num_dropped_ = 0;
};

// A block's time, where the trace covers the round.
class TraceSpan {
 public:
  TraceSpan(Trace* trace, const TraceEvent& event) {
    if (trace == nullptr || !trace->covers(event.round)) return;
    trace_ = trace;
    event_ = event;
    event_.begin_ns = Trace::now_ns();
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;
  ~TraceSpan() {
    if (trace_ == nullptr) return;
    event_.end_ns = Trace::now_ns();
    trace_->add(event_);
  }

 private:
  Trace* trace_ = nullptr;
  TraceEvent event_;
};

}  // namespace geomx
