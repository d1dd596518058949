// The user-space WAN: a decorator around a transport that makes messages take as long as the links between parties
// would.
//
// The sender reserves the time in which a message passes its party's access link and says it in a stamp that travels
// behind the message; the receiver holds the message for the path's delay and for the time in which it passes its own
// access link. Bytes follow each other through both links (a message need not be in before it goes on), and nothing is
// held twice. Times are the host's clock, so all nodes must be on one host; nodes of one party don't feel any of it.
// A message of a stream is as large as TCP/IP would make it and keeps its order; one of a channel of datagrams is a
// packet: it may be lost, meet a full queue and be overtaken.
#pragma once
#include <deque>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "reactor.h"
#include "transport_over.h"
#include "wan_links.h"

namespace geomx {

class Shaper : public TransportOver {
 public:
  Shaper(Reactor& reactor, std::unique_ptr<Transport> inner, WanShape shape, std::shared_ptr<WanLinks> links);
  ~Shaper() override;

  // The stamp is ours, not the protocol's: no overhead() counts it.
  void send(PeerId peer, uint8_t channel, Message message) override;
  Status open_channels(const LossyChannels& channels) override;
  size_t max_datagram(PeerId peer) const override;
  // Where there are lossy channels, what our access link's queue should take: more would be dropped there, whatever its
  // rank. Streams are held back by nothing but the credit, as over a kernel's TCP.
  size_t room(PeerId peer, uint8_t channel) const override;
  bool is_lost(PeerId peer) const override;
  void close() override;

  // What a message of the reliable channel takes on a link with IP packets of 1,500 bytes.
  static double stream_bytes(size_t size);
  static double datagram_bytes(size_t size) { return double(size) + 28; }

 private:
  struct Stamp;
  // What came from one peer and waits: messages, and at last that the connection is over.
  struct Held {
    Message message;
    uint8_t channel;
    uint64_t first_us, last_us;  // when its first and last byte reach our access link
    double bytes;
    std::string lost;  // not empty: no message but the end, and why
  };
  struct Peer {
    uint32_t party = kUnknown;
    std::deque<Held> streams;  // in order
    bool is_waiting = false;   // for the first of them
    uint64_t last_due_us = 0;
  };
  static constexpr uint32_t kUnknown = ~uint32_t(0);

  void take_in(PeerId from, uint8_t channel, Message message) override;
  void on_stamped(PeerId from, uint8_t channel, const Stamp& stamp, Message message);
  void lose(PeerId peer, const std::string& why) override;
  void wait_for_first(PeerId from);
  uint64_t pass_down(const Held& held);
  void charge_acknowledgements(uint32_t from, double bytes);
  double backlog_bytes(double bytes_per_s) const;
  bool is_stream(uint8_t channel) const { return channel == 0 || channel == kBulk || are_streams_; }
  void wake_when_there_is_room(PeerId peer, double bytes_per_s, double limit) const;
  void hand_over(PeerId from, Held held);
  double rate(LinkSide side) const { return rate(side, shape_.party); }
  double rate(LinkSide side, uint32_t party) const { return shape_.rate_at(since_us(), party, side); }
  uint64_t since_us() const;
  const WanTraceRow* row() const { return shape_.row_at(since_us()); }
  uint64_t delay_us(const WanPath& path);
  void later(uint64_t when_us, Task task) const;

  Reactor& reactor_;
  WanShape shape_;
  std::shared_ptr<WanLinks> links_;
  bool are_streams_ = false;                         // the lossy channels
  mutable std::unordered_set<PeerId> without_room_;  // who will be told
  std::unordered_map<PeerId, Peer> peers_;
  std::unordered_map<uint32_t, LossProcess> losses_;  // by the sender's party
  std::mt19937_64 random_;
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);  // for timers
};

}  // namespace geomx
