// Lossy channels, and a reliable way that loss doesn't slow down, beside a stream: plain UDP sockets around another
// transport. What goes over channel 0 stays on the stream, with everything that the stream knows about tokens and ends
// of connections; kBulk and lossy channels take datagrams (datagram_flow.h) where both ends have opened channels and
// datagrams are known to get through, and the stream where not. Channels that are to be streams are the stream's to
// make.
//
// The ends tell each other over the stream where they take datagrams and by which key; a datagram without one is a
// stranger's, counted and dropped. Each lossy channel has a socket of its own, marked with its priority (DSCP class
// selectors, falling); all datagrams are received on one. How large they may be is tried out, since nothing on the way
// cuts them up. Lives on its loop's thread.
#pragma once
#include <memory>
#include <unordered_map>
#include <vector>

#include "datagram_flow.h"
#include "loop.h"
#include "sockets.h"
#include "transport_over.h"

namespace geomx {

class DatagramTransport : public TransportOver, private Loop::Source {
 public:
  DatagramTransport(Loop& loop, std::unique_ptr<Transport> stream);
  ~DatagramTransport() override;

  Status connect(const std::string& address, PeerId* peer) override;
  void send(PeerId peer, uint8_t channel, Message message) override;
  size_t overhead_to(PeerId peer, uint8_t channel, const Message& message) const override;
  void close() override;

  Status open_channels(const LossyChannels& channels) override;
  size_t max_datagram(PeerId peer) const override;
  size_t room(PeerId peer, uint8_t channel) const override;
  std::map<std::string, double> figures() const override;
  // For tests: a share of all data that is received is lost.
  void set_loss(double share) { loss_ = share; }
  uint16_t port() const { return port_; }

 private:
  struct Session;

  void take_in(PeerId from, uint8_t channel, Message message) override;
  void lose(PeerId peer, const std::string& why) override;

  Session& session_of(PeerId peer);
  Session* up(PeerId peer) const;
  void offer_to(PeerId peer, Session& session);
  void take_offer(PeerId peer, const Message& message);
  void begin(PeerId peer, Session& session);
  void probe(PeerId peer);
  void take_reply(PeerId peer, Session& session, const Packet& packet, uint64_t now_us);
  void set_up(PeerId peer, Session& session, bool is_up);
  void fall_back(PeerId peer, Session& session);

  bool append_descriptors(std::vector<pollfd>* descriptors) override;
  void read(const std::vector<pollfd>& descriptors) override;
  void take(const uint8_t* data, size_t size, const Endpoint& from, uint64_t arrived_us);
  void write(Session& session, uint8_t channel, const std::vector<uint8_t>& datagram);
  void run(PeerId peer, Session& session, uint64_t now_us);
  void arm();
  int open_channel(uint8_t channel);

  Loop& loop_;
  std::vector<int> sockets_;  // by channel; the first receives
  int family_ = 0;
  uint16_t port_ = 0;
  uint64_t buffer_ = 0;  // of one peer's datagrams, that our socket holds
  uint8_t num_channels_ = 0;
  std::unordered_map<PeerId, std::unique_ptr<Session>> sessions_;
  std::unordered_map<uint64_t, PeerId> by_key_;  // keys that others show to us
  size_t place_ = 0;                             // of our descriptor among all
  std::vector<PeerId> touched_;                  // by what was read in this turn
  TimerId timer_ = 0;
  uint64_t timer_us_ = 0;
  uint64_t strangers_ = 0, too_large_ = 0;
  double loss_ = 0;
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);  // for timers
  bool is_closed_ = false;
};

}  // namespace geomx
