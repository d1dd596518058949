// Where others come in: the ROUTER that listens, and whose the connections are that were opened to it. Nobody's message
// gets past it before its connection has said hello with the right token (handshake.h). Lives on its loop's thread.
#pragma once
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "handshake.h"
#include "loop.h"
#include "status.h"
#include "transport.h"
#include "zmq_socket.h"

namespace geomx {

class ZmqDoor {
 public:
  struct Events {
    // Who said a good hello becomes a peer, which is written to by this routing id.
    std::function<PeerId(const std::string& routing_id, const std::string& host, const Hello& hello)> on_hello;
    std::function<void(PeerId, std::vector<Bytes> frames)> on_frames;
    std::function<void(PeerId)> on_end;
    std::function<void(const std::string& why)> on_refused;
  };

  ZmqDoor(Loop& loop, const ZmqOptions& options, Events events)
      : loop_(loop), options_(options), events_(std::move(events)) {}

  Status bind(const std::string& host, uint16_t port);  // as of Transport
  const std::string& address() const { return address_; }
  void close() { router_.close(0); }

  bool append_descriptors(std::vector<pollfd>* descriptors) { return router_.append_descriptors(descriptors); }
  bool read(const std::vector<pollfd>& descriptors);  // false: there was nothing to read
  void read_again() { router_.read_again(); }
  bool has_more() const { return router_.has_more(); }

  // False: nobody is there any more.
  bool send(const std::string& routing_id, const std::vector<Bytes>& frames) {
    return router_.send(frames, routing_id);
  }
  void forget(const std::string& routing_id) { by_routing_id_.erase(routing_id); }

 private:
  // A connection that somebody opened to us and that isn't closed.
  struct Accepted {
    bool is_peer = false, is_refused = false;
    PeerId peer = 0;
  };

  void read_events();
  void on_ended(int fd);
  void take(const ZmqFrames& frames);
  void on_stranger(const ZmqFrames& frames);
  std::string why_not(const Hello& hello, const std::string& host) const;
  void watch(PeerId peer, int fd);

  Loop& loop_;
  const ZmqOptions& options_;
  Events events_;
  std::string address_;
  ZmqSocket router_;
  std::unordered_map<std::string, PeerId> by_routing_id_;
  std::unordered_map<int, Accepted> accepted_;  // by file descriptor
  bool is_failure_told_ = false;                // of the connection whose end is the next event
};

}  // namespace geomx
