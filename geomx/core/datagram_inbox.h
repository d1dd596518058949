// What one end of a datagram flow has received: which packets, the halves of messages, and what is to be acknowledged.
// Knows neither sockets nor clocks, like the flow that it is of (datagram_flow.h).
#pragma once
#include <functional>
#include <map>
#include <optional>

#include "datagram.h"
#include "ranges.h"

namespace geomx {

constexpr uint64_t kAckDelayUs = 2000;  // that an acknowledgement waits at most for more to say

class DatagramInbox {
 public:
  using Deliver = std::function<void(uint8_t channel, Message message)>;
  struct Figures {
    uint64_t doubles = 0, malformed = 0, crowded = 0;  // known already; not a message; no memory for it
  };

  explicit DatagramInbox(Deliver deliver) : deliver_(std::move(deliver)) {}

  // `arrived_us`: when it reached this host.
  void take(const Packet& packet, uint64_t now_us, uint64_t arrived_us);
  uint64_t ack_due_us() const { return ack_due_us_; }  // 0: nothing is to be acknowledged
  // All but the key; nothing where nothing was received.
  std::optional<Packet> acknowledge(uint64_t now_us);
  const Figures& figures() const { return figures_; }

 private:
  struct Incoming {
    Bytes flat;
    Ranges received;
    uint8_t channel;
  };

  bool take_chunk(uint8_t channel, const Chunk& chunk);
  bool is_crowded(uint8_t channel, const Chunk& chunk);
  void deliver(uint8_t channel, const Bytes& flat);

  Deliver deliver_;
  Figures figures_;
  Ranges received_;  // packets
  uint64_t largest_us_ = 0;
  int unacknowledged_ = 0;
  uint64_t ack_due_us_ = 0;
  std::map<uint64_t, Incoming> incoming_[2];  // lossy, reliable
  uint64_t incoming_bytes_[2] = {0, 0};
  Ranges complete_;  // reliable messages
};

}  // namespace geomx
