// What becomes of packets between parties: queues of access links, delay, jitter, loss. Pure: told what comes and what
// time it is, says what is due; knows neither devices nor clocks.
//
// A packet waits in its party's queue (drop-tail, in bytes), is sent at the link's rate, travels, waits in the other
// party's queue and is sent at that link's rate. Times are exact whatever the caller's are: a late caller makes packets
// late, never a link slower or faster; only a packet's arrival varies by up to a full packet's time on the link that it
// comes to. Packets of one pair of parties keep their order.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <random>
#include <vector>

#include "core/wan_links.h"

namespace geomx {

struct Packet {
  uint32_t from = 0, to = 0;
  uint8_t band = 0;  // 0 leaves first
  std::vector<uint8_t> data;
};

// Of one party.
struct LinkCounters {
  uint64_t up_packets = 0, up_bytes = 0;      // offered by the party
  uint64_t down_packets = 0, down_bytes = 0;  // delivered to it
  uint64_t dropped = 0;                       // at its queues, full
  uint64_t lost = 0;                          // of its own packets, on the way
};

class Emulator {
 public:
  using Deliver = std::function<void(Packet&&)>;
  // has_priorities: a link sends packets of a lower band first, and drops those of the highest one.
  Emulator(WanShape shape, bool has_priorities, uint64_t origin_ns);

  void offer(uint64_t now_ns, Packet packet);
  void run(uint64_t now_ns, const Deliver& deliver);  // all that is due until now, in order
  bool is_idle() const { return events_.empty(); }
  uint64_t next_ns() const { return events_.top().when_ns; }
  const std::vector<LinkCounters>& counters() const { return counters_; }

  static constexpr size_t kBands = 8;
  static constexpr double kPacketBytes = 1500;

 private:
  // One direction of one access link.
  struct Link {
    std::array<std::deque<Packet>, kBands> bands;
    double queued_bytes = 0;
    bool is_sending = false;
    Packet sending;
  };
  struct Event {
    uint64_t when_ns, order;
    uint32_t link;                              // whose packet is sent, or kArrives
    size_t slot;                                // of arriving_
    bool operator<(const Event& other) const {  // for a heap with the earliest on top
      return when_ns != other.when_ns ? when_ns > other.when_ns : order > other.order;
    }
  };
  static constexpr uint32_t kArrives = ~uint32_t(0);

  void enqueue(uint64_t now_ns, uint32_t link, Packet packet);
  bool make_room(Link& link, const Packet& packet, double limit);
  void send_next(uint64_t now_ns, uint32_t link);
  void on_sent(uint64_t now_ns, uint32_t link, const Deliver& deliver);
  void travel(uint64_t now_ns, Packet packet);
  uint64_t phase_ns(uint64_t now_ns, uint32_t link);
  double rate(uint64_t now_ns, uint32_t link) const;
  const WanTraceRow* row(uint64_t now_ns) const;
  void schedule(uint64_t when_ns, uint32_t link, size_t slot = 0) { events_.push({when_ns, ++order_, link, slot}); }

  WanShape shape_;
  bool has_priorities_;
  uint64_t origin_ns_, order_ = 0;
  std::vector<Link> links_;
  std::vector<LinkCounters> counters_;
  std::vector<LossProcess> losses_;    // [from * parties + to]
  std::vector<uint64_t> last_due_ns_;  // the same: order is kept
  std::priority_queue<Event> events_;
  std::vector<Packet> arriving_;  // slots of packets that travel
  std::vector<size_t> free_slots_;
  std::mt19937_64 random_;
};

}  // namespace geomx
