// The transport seam: moves messages between the nodes of one domain. Knows addresses and connections, nothing of
// roles, keys or rounds.
//
// A message is a head and attachments (large payloads that are sent without copying). Channel 0 is reliable: what is
// sent arrives once, while both ends live. kBulk is too, by whatever way carries most: it keeps no order with channel
// 0. Channels from 1 may lose, double and reorder.
//
// Threads: all calls come from, and all callbacks go to, turns of the node's reactor.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "buffer.h"
#include "status.h"

namespace geomx {

struct Message {
  Bytes head;
  std::vector<Bytes> attachments;
  size_t size() const {
    size_t total = head.size();
    for (const Bytes& attachment : attachments) total += attachment.size();
    return total;
  }
};

// A connection, numbered by the transport. Valid until the transport is closed.
using PeerId = uint32_t;

constexpr uint8_t kBulk = 255;

// Channels that may lose. Their priority falls from one to the next. are_streams: what is sent on them arrives, unless
// they break, but each takes no more than leaves at once, so that the rest can still be dropped by who has it.
struct LossyChannels {
  uint8_t count = 0;
  bool are_streams = false;
};

class Transport {
 public:
  // refused: the peer or the bytes were not acceptable to the transport (no token, malformed); counted by the node.
  using Receiver = std::function<void(PeerId from, uint8_t channel, Message message)>;
  using OnRefused = std::function<void(const std::string& why)>;
  // lost: there is trouble with a connection; is_lost() says whether it is over or still tried.
  using OnLost = std::function<void(PeerId peer, const std::string& why)>;

  virtual ~Transport() = default;
  // Starts to listen on host:port (port 0: any free one). The error names address, port, reason and, where it can be
  // seen, the process that holds it.
  virtual Status bind(const std::string& host, uint16_t port) = 0;
  virtual std::string address() const = 0;  // "host:port" that others connect to
  // Opens a connection to another node's address. Resolves the name first: an unknown host is an error at once.
  virtual Status connect(const std::string& address, PeerId* peer) = 0;
  virtual void send(PeerId peer, uint8_t channel, Message message) = 0;
  // Memory for an attachment that goes to this peer, and perhaps to others: where it can be shared with the peer,
  // sending it later copies nothing.
  virtual Bytes allocate(PeerId peer, size_t size) {
    (void)peer;
    return Bytes::allocate(size);
  }
  virtual void receive(Receiver receiver, OnRefused on_refused, OnLost on_lost) = 0;
  // Bytes that the transport adds to each message (framing), for the counters.
  virtual size_t overhead(const Message& message) const = 0;
  // The same, where the way to the peer matters. What is sent again isn't counted.
  virtual size_t overhead_to(PeerId, uint8_t, const Message& message) const { return overhead(message); }
  // Lossy channels from now on, to peers that have them too; until then, and to others, there are none.
  virtual Status open_channels(const LossyChannels&) { return Status::error("it has no lossy channels"); }
  // The largest message of a lossy channel to this peer; 0: there are no lossy channels to it.
  virtual size_t max_datagram(PeerId) const { return 0; }
  // Bytes of this channel, kBulk or a lossy one, that it takes now; more would only wait, where nothing can overtake it
  // any more. SIZE_MAX: whatever is given.
  virtual size_t room(PeerId, uint8_t /*channel*/) const { return SIZE_MAX; }
  // Called when there is room again, or lossy channels where there were none.
  virtual void on_room(std::function<void(PeerId)>) {}
  // What it counts, by name.
  virtual std::map<std::string, double> figures() const { return {}; }
  // Nothing comes from or goes to this peer any more.
  virtual bool is_lost(PeerId) const { return false; }
  // How long close() waits at most for peers to have read what was sent.
  virtual void set_linger_ms(int) {}
  virtual void close() = 0;
};

}  // namespace geomx
