// See send_queue.h.
#include "send_queue.h"

#include <algorithm>

namespace geomx {

void SendQueue::push_ranked(uint8_t channel, Frame frame, int64_t rank, uint64_t wait_us, int64_t since_ns) {
  Heap& heap = channel == 0 ? ranked_ : lossy_[channel];
  if (channel != 0) {
    lossy_orders_.insert(next_order_);
    has_new_lossy_ = has_new_lossy_ || wait_us != 0;
  }
  heap.push_back(Queued{rank, next_order_++, std::move(frame), wait_us, 0, since_ns});
  std::push_heap(heap.begin(), heap.end());
}

SendQueue::Queued SendQueue::pop(uint8_t channel) {
  Heap& heap = channel == 0 ? ranked_ : lossy_[channel];
  std::pop_heap(heap.begin(), heap.end());
  Queued first = std::move(heap.back());
  heap.pop_back();
  if (channel != 0) lossy_orders_.erase(first.order);
  return first;
}

bool SendQueue::pop_trailing(Frame* frame) {
  if (trailing_.empty() || (has_lossy() && *lossy_orders_.begin() < trailing_.front().order)) return false;
  *frame = std::move(trailing_.front().frame);
  trailing_.pop_front();
  return true;
}

void SendQueue::start_waits(uint64_t now_us) {
  if (!has_new_lossy_) return;
  has_new_lossy_ = false;
  for (auto& [channel, frames] : lossy_) {
    for (Queued& queued : frames) {
      if (queued.wait_us == 0 || queued.deadline_us != 0) continue;
      queued.deadline_us = now_us + queued.wait_us;
      note_deadline(queued);
    }
  }
}

void SendQueue::note_deadline(const Queued& queued) {
  if (queued.deadline_us == 0) return;
  if (first_deadline_us_ == 0 || queued.deadline_us < first_deadline_us_) first_deadline_us_ = queued.deadline_us;
}

// Asked whenever anything may leave, so it looks at the frames only when one may be late.
void SendQueue::drop_late(uint64_t now_us, const std::function<void(const Frame&)>& on_dropped) {
  if (first_deadline_us_ == 0 || first_deadline_us_ > now_us) return;
  first_deadline_us_ = 0;
  for (auto& [channel, frames] : lossy_) {
    const auto is_late = [&](const Queued& queued) {
      if (queued.deadline_us == 0 || queued.deadline_us > now_us) {
        note_deadline(queued);
        return false;
      }
      lossy_orders_.erase(queued.order);
      on_dropped(queued.frame);
      return true;
    };
    const auto end = std::remove_if(frames.begin(), frames.end(), is_late);
    if (end == frames.end()) continue;
    frames.erase(end, frames.end());
    std::make_heap(frames.begin(), frames.end());
  }
}

}  // namespace geomx
