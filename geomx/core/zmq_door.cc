// See zmq_door.h.
#include "zmq_door.h"

#include <cerrno>
#include <optional>

#include "address.h"

namespace geomx {

Status ZmqDoor::bind(const std::string& host, uint16_t port) {
  GX_CHECK(!router_.is_open(), "a transport listens once");
  const std::string shown_host = host.empty() || host == "*" ? "0.0.0.0" : host;
  const std::string wanted = "can't listen on " + to_address(shown_host, port) + ": ";
  std::string numeric;
  const Status status = resolve(host == "0.0.0.0" ? "*" : host, true, &numeric);
  if (!status.ok()) return Status::error(wanted + status.message());

  router_.open(loop_.context(), ZMQ_ROUTER, options_);
  router_.set(ZMQ_ROUTER_MANDATORY, 1);
  if (router_.bind("tcp://" + to_address(numeric, port)) != 0) {
    const int error = errno;
    router_.close(0);
    return Status::error(wanted + (error == EADDRINUSE ? "address already in use" + port_owner(port)
                                                       : std::string(zmq_strerror(error))));
  }
  address_ = to_address(shown_host, router_.bound_port());
  return {};
}

// ---- reading -------------------------------------------------------------------------------------------------------

// Events first: a peer whose end is among them is lost only when the socket has nothing more to read.
bool ZmqDoor::read(const std::vector<pollfd>& descriptors) {
  bool has_events = false;
  if (!router_.is_told(descriptors, &has_events)) return false;
  if (has_events) read_events();
  if (router_.is_open()) router_.read_messages([this](const ZmqFrames& frames) { take(frames); }, events_.on_refused);
  return true;
}

void ZmqDoor::read_events() {
  ZmqSocket::Event event;
  while (router_.read_event(&event)) {
    switch (event.kind) {
      case ZmqSocket::Event::Kind::spoke_otherwise:
        is_failure_told_ = true;  // its end is the next event
        events_.on_refused("a connection to " + address_ + " spoke something else");
        break;
      case ZmqSocket::Event::Kind::accepted:
        accepted_[event.fd] = {};
        break;
      case ZmqSocket::Event::Kind::ended:
        on_ended(event.fd);
        break;
      case ZmqSocket::Event::Kind::tried:  // by who connects
        break;
    }
  }
}

void ZmqDoor::on_ended(int fd) {
  const auto found = accepted_.find(fd);
  const Accepted connection = found == accepted_.end() ? Accepted{} : found->second;
  if (connection.is_peer) {
    events_.on_end(connection.peer);
  } else if (!connection.is_refused && !is_failure_told_) {
    events_.on_refused("a connection to " + address_ + " that said nothing we know");
  }
  accepted_.erase(fd);
  is_failure_told_ = false;
}

void ZmqDoor::take(const ZmqFrames& frames) {
  const auto found = by_routing_id_.find(std::string(frames[0]->text()));
  if (found == by_routing_id_.end()) return on_stranger(frames);
  if (frames.size() > 1) events_.on_frames(found->second, contents_of(frames, 1));
}

// ---- strangers -----------------------------------------------------------------------------------------------------

void ZmqDoor::on_stranger(const ZmqFrames& frames) {
  read_events();  // of a connection that was just accepted the event is there already
  const std::string id(frames[0]->text());
  const std::string host = frames.size() > 1 ? frames[1]->peer_host() : "";
  const int fd = frames.size() > 1 ? frames[1]->connection_fd() : -1;
  const auto connection = accepted_.find(fd);
  if (connection != accepted_.end()) connection->second.is_refused = true;
  // A chosen identity could take over another's connection; ZeroMQ's own begin with a zero and have five bytes.
  if (id.size() != 5 || id[0] != 0)
    return events_.on_refused("a connection from " + host + " that chose its own identity");
  const bool is_greeting = frames.size() == 3 && frames[1]->size() == 0;
  const auto hello = is_greeting ? parse_hello(ZmqFrame::bytes(frames[2])) : std::nullopt;
  if (!hello) return events_.on_refused("a message from " + host + " that said no hello");

  const std::string why = why_not(*hello, host);
  if (!why.empty()) {
    send(id, {Bytes(), pack(Refusal{why})});
    return events_.on_refused("a connection from " + host + ": " + why);
  }
  const PeerId peer = events_.on_hello(id, host, *hello);
  by_routing_id_[id] = peer;
  watch(peer, fd);
}

std::string ZmqDoor::why_not(const Hello& hello, const std::string& host) const {
  if (hello.version != handshake_version) {
    return "it speaks version " + std::to_string(hello.version) + " of the protocol, this node version " +
           std::to_string(handshake_version);
  }
  if (!is_equal(hello.proof, hello_proof(options_.token))) {
    if (options_.token.empty()) return "it shows a token, but none is set on this node (GEOMX_TOKEN)";
    if (is_equal(hello.proof, hello_proof(""))) return "it shows no token, but one is set on this node (GEOMX_TOKEN)";
    return "it shows another token than this node's (GEOMX_TOKEN)";
  }
  if (options_.token.empty() && !is_this_host(host)) {
    return "without a token (GEOMX_TOKEN) only nodes on the same host are let in";
  }
  return "";
}

// Its end will be told by the number of its socket. What has happened to that number before, the greeting itself
// excepted, is among the events already.
void ZmqDoor::watch(PeerId peer, int fd) {
  const auto connection = accepted_.find(fd);
  if (connection == accepted_.end()) return events_.on_end(peer);
  if (connection->second.is_peer) events_.on_end(connection->second.peer);
  connection->second.is_peer = true;
  connection->second.peer = peer;
}

}  // namespace geomx
