// The transport of real nodes: ZeroMQ over TCP; with peers of the same host, memory that is shared for what is large
// (lending.h) and a pipe of our own for the rest (local_pipe.h), while the connection of ZeroMQ tells whether they are
// still there.
//
// One ROUTER listens (zmq_door.h); each connection that we open has a DEALER; peers that connected to us are answered
// on the connection that they opened, so a node behind NAT is a full peer (zmq_peer.h). Lives on its loop's thread,
// like its callbacks.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "loop.h"
#include "transport.h"
#include "zmq_options.h"
#include "zmq_peer.h"

namespace geomx {

class ZmqTransport : public Transport, private Loop::Source {
 public:
  // Made, like everything, on the loop's thread, or before the loop is started.
  ZmqTransport(Loop& loop, ZmqOptions options);
  ~ZmqTransport() override;  // closes; not from within a callback of its own

  Status bind(const std::string& host, uint16_t port) override;
  std::string address() const override { return shared_.door.address(); }
  // Nobody needs to listen there yet: it is tried until it succeeds, and what is sent meanwhile waits. The first failed
  // try is told through on_lost with why; is_lost() says that there will be no other.
  Status connect(const std::string& address, PeerId* peer) override;
  void send(PeerId peer, uint8_t channel, Message message) override;
  Bytes allocate(PeerId peer, size_t size) override { return peers_[peer]->allocate(size); }
  void receive(Receiver receiver, OnRefused on_refused, OnLost on_lost) override;
  size_t overhead(const Message& message) const override;
  // Nothing is called back any more. Waits, for linger_ms at most, until peers have read all that was sent.
  void close() override;

  bool is_lost(PeerId peer) const override { return peers_[peer]->is_lost(); }
  bool shares_memory_with(PeerId peer) const { return peers_[peer]->shares_memory(); }
  bool has_pipe_to(PeerId peer) const { return peers_[peer]->has_pipe(); }
  // Of this node's shared memory, by who allocated it here and by peers that hold it.
  size_t shared_bytes() const { return shared_.lender.used_bytes(); }
  // 0: what waits to leave is dropped.
  void set_linger_ms(int linger_ms) override { shared_.options.linger_ms = linger_ms; }

 private:
  ZmqDoor::Events door_events();
  ZmqPeer& add_peer();
  bool append_descriptors(std::vector<pollfd>* descriptors) override;
  void read(const std::vector<pollfd>& descriptors) override;
  void say_goodbye();

  ZmqShared shared_;
  std::vector<std::unique_ptr<ZmqPeer>> peers_;
};

}  // namespace geomx
