// See zmq_transport.h. On the wire a message of the node is its head and its attachments, a frame each. Frames that
// begin with an empty one are the transport's own: greetings, references to shared memory before a message, returns.
#include "zmq_transport.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "address.h"

namespace geomx {

namespace {

constexpr size_t shared_from_bytes = 32 << 10;   // smaller attachments are quicker through the socket
constexpr uint64_t max_mapped_bytes = 64 << 20;  // of others' memory, while nobody looks at it
constexpr size_t copied_below_bytes = 1 << 10;   // smaller frames are quicker copied than kept alive
constexpr int max_messages_a_turn = 64;
constexpr size_t max_bytes_a_turn = 512 << 10;  // then the node gets to send what it made of them
constexpr size_t max_frames = 65536;
constexpr int64_t max_frame_bytes = int64_t{64} << 30;
constexpr int reconnect_ms = 100, max_reconnect_ms = 400, handshake_ms = 10000;
constexpr uint64_t reopen_us = 300000;
constexpr uint64_t quick_failure_us = 1000000;

constexpr int ends = ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                     ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
constexpr int tries = ZMQ_EVENT_CONNECT_RETRIED;

bool is_handshake_failure(uint16_t event) { return (event & (ends & ~ZMQ_EVENT_DISCONNECTED)) != 0; }

void set(void* socket, int option, int value) {
  const int code = zmq_setsockopt(socket, option, &value, sizeof(value));
  GX_CHECK(code == 0, zmq_strerror(errno));
}

int descriptor_of(void* socket) {
  int fd = -1;
  size_t size = sizeof(fd);
  GX_CHECK(zmq_getsockopt(socket, ZMQ_FD, &fd, &size) == 0, zmq_strerror(errno));
  return fd;
}

// A frame that shares its memory with the bytes, or a small copy.
void init_frame(zmq_msg_t* frame, const Bytes& bytes) {
  if (bytes.size() < copied_below_bytes) {
    zmq_msg_init_size(frame, bytes.size());
    if (!bytes.empty()) std::memcpy(zmq_msg_data(frame), bytes.data(), bytes.size());
    return;
  }
  Bytes* kept = new Bytes(bytes);
  zmq_msg_init_data(
      frame, kept->writable(), kept->size(), [](void*, void* hint) { delete static_cast<Bytes*>(hint); }, kept);
}

}  // namespace

struct ZmqTransport::Frame {
  zmq_msg_t message;
  Frame() { zmq_msg_init(&message); }
  ~Frame() { zmq_msg_close(&message); }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  size_t size() { return zmq_msg_size(&message); }
  std::string_view text() { return {static_cast<const char*>(zmq_msg_data(&message)), size()}; }
  std::string peer_host() {
    const char* host = zmq_msg_gets(&message, "Peer-Address");
    return host == nullptr ? "" : unmapped(host);
  }
  static Bytes bytes(const std::shared_ptr<Frame>& frame) {
    return Bytes(frame, static_cast<uint8_t*>(zmq_msg_data(&frame->message)), frame->size());
  }
};

struct ZmqTransport::ReturnQueue : std::enable_shared_from_this<ReturnQueue> {
  std::mutex mutex;
  std::vector<uint64_t> loans;
  ZmqTransport* transport = nullptr;  // null once it is closed
  PeerId peer = 0;

  void add(uint64_t loan) {
    std::lock_guard<std::mutex> lock(mutex);
    if (transport == nullptr) return;
    loans.push_back(loan);
    if (loans.size() > 1) return;  // the flush that the first one asked for takes this one too
    transport->loop_.post([self = shared_from_this()] {
      ZmqTransport* owner;
      {
        std::lock_guard<std::mutex> inner(self->mutex);
        owner = self->transport;  // closed on this same thread, so it stays what it is
      }
      if (owner != nullptr) owner->flush_returns(self->peer);
    });
  }
};

ZmqTransport::ZmqTransport(Loop& loop, ZmqOptions options)
    : loop_(loop), options_(std::move(options)), is_alive_(std::make_shared<bool>(true)) {
  keep_large_blocks();
  if (options_.is_memory_shared) arena_ = Arena::create();
  mapped_pages_ = std::make_shared<MappedPages>(max_mapped_bytes);
  loop_.add(this);
}

ZmqTransport::~ZmqTransport() { close(); }

void ZmqTransport::receive(Receiver receiver, OnRefused on_refused, OnLost on_lost) {
  receiver_ = std::move(receiver);
  on_refused_ = std::move(on_refused);
  on_lost_ = std::move(on_lost);
}

// ---- sockets -------------------------------------------------------------------------------------------------------

ZmqTransport::Socket ZmqTransport::open_socket(int type, int events) {
  Socket opened;
  opened.socket = zmq_socket(loop_.context(), type);
  GX_CHECK(opened.socket != nullptr, zmq_strerror(errno));
  // Credit bounds what is in flight, so no queue here has a limit of its own.
  set(opened.socket, ZMQ_SNDHWM, 0);
  set(opened.socket, ZMQ_RCVHWM, 0);
  set(opened.socket, ZMQ_IPV6, 1);
  set(opened.socket, ZMQ_LINGER, options_.linger_ms);
  set(opened.socket, ZMQ_HANDSHAKE_IVL, handshake_ms);
  set(opened.socket, ZMQ_RECONNECT_IVL, reconnect_ms);
  set(opened.socket, ZMQ_RECONNECT_IVL_MAX, max_reconnect_ms);
  set(opened.socket, ZMQ_CONNECT_TIMEOUT, options_.connect_timeout_ms);
  if (options_.send_buffer_bytes != 0) set(opened.socket, ZMQ_SNDBUF, options_.send_buffer_bytes);
  zmq_setsockopt(opened.socket, ZMQ_MAXMSGSIZE, &max_frame_bytes, sizeof(max_frame_bytes));

  const std::string endpoint = "inproc://monitor-" + std::to_string(reinterpret_cast<uintptr_t>(opened.socket));
  zmq_socket_monitor(opened.socket, endpoint.c_str(), events);
  opened.monitor = zmq_socket(loop_.context(), ZMQ_PAIR);
  GX_CHECK(opened.monitor != nullptr, zmq_strerror(errno));
  set(opened.monitor, ZMQ_RCVHWM, 0);  // or the I/O thread would wait for us
  set(opened.monitor, ZMQ_LINGER, 0);
  GX_CHECK(zmq_connect(opened.monitor, endpoint.c_str()) == 0, zmq_strerror(errno));
  opened.socket_fd = descriptor_of(opened.socket);
  opened.monitor_fd = descriptor_of(opened.monitor);
  return opened;
}

void ZmqTransport::close_socket(Socket* socket, int linger_ms) {
  if (socket->socket == nullptr) return;
  set(socket->socket, ZMQ_LINGER, linger_ms);
  zmq_socket_monitor(socket->socket, nullptr, 0);
  zmq_close(socket->monitor);
  zmq_close(socket->socket);
  *socket = {};
}

Status ZmqTransport::bind(const std::string& host, uint16_t port) {
  GX_CHECK(router_.socket == nullptr && !is_closed_, "a transport listens once");
  const std::string shown_host = host.empty() || host == "*" ? "0.0.0.0" : host;
  const std::string wanted = "can't listen on " + to_address(shown_host, port) + ": ";
  std::string numeric;
  const Status status = resolve(host == "0.0.0.0" ? "*" : host, true, &numeric);
  if (!status.ok()) return Status::error(wanted + status.message());

  router_ = open_socket(ZMQ_ROUTER, ends | ZMQ_EVENT_ACCEPTED);
  set(router_.socket, ZMQ_ROUTER_MANDATORY, 1);
  if (zmq_bind(router_.socket, ("tcp://" + to_address(numeric, port)).c_str()) != 0) {
    const int error = errno;
    close_socket(&router_, 0);
    return Status::error(wanted + (error == EADDRINUSE ? "address already in use" + port_owner(port)
                                                       : std::string(zmq_strerror(error))));
  }
  char endpoint[256] = {};
  size_t size = sizeof(endpoint);
  zmq_getsockopt(router_.socket, ZMQ_LAST_ENDPOINT, endpoint, &size);
  const std::string bound_port = std::string(endpoint).substr(std::string(endpoint).rfind(':') + 1);
  address_ = to_address(shown_host, static_cast<uint16_t>(std::stoul(bound_port)));
  return {};
}

void ZmqTransport::close() {
  if (is_closing_) return;
  is_closing_ = true;
  say_goodbye();
  is_closed_ = true;
  *is_alive_ = false;
  copies_.clear();
  loop_.remove(this);
  for (const std::unique_ptr<Peer>& peer : peers_) {
    close_socket(&peer->dealer, 0);
    peer->pipe.reset();
    std::lock_guard<std::mutex> lock(peer->returns->mutex);
    peer->returns->transport = nullptr;
  }
  close_socket(&router_, 0);
}

// Reads on, and drops what it reads, until all have answered or time is up.
void ZmqTransport::say_goodbye() {
  if (options_.linger_ms == 0) return;
  const uint64_t deadline_us = loop_.now_us() + static_cast<uint64_t>(options_.linger_ms) * 1000;
  for (const std::unique_ptr<Peer>& peer : peers_) {
    peer->is_leaving = is_awaited(*peer);
    if (peer->is_leaving) send_internal(*peer, pack(Bye{}));
  }
  const auto is_waiting = [](const std::unique_ptr<Peer>& peer) { return peer->is_leaving; };
  while (std::any_of(peers_.begin(), peers_.end(), is_waiting)) {
    const uint64_t now_us = loop_.now_us();
    if (now_us >= deadline_us) return;
    std::vector<pollfd> descriptors;
    const bool is_ready = append_descriptors(&descriptors);
    poll(descriptors.data(), descriptors.size(), is_ready ? 0 : static_cast<int>((deadline_us - now_us) / 1000 + 1));
    read(descriptors);
  }
}

// Somebody is there, or may be soon, and was sent something.
bool ZmqTransport::is_awaited(const Peer& peer) const {
  if (peer.state == Peer::State::open) return !peer.is_ending;
  return peer.state == Peer::State::greeting && !peer.unconfirmed.empty();
}

ZmqTransport::Peer& ZmqTransport::add_peer() {
  peers_.push_back(std::make_unique<Peer>());
  Peer& peer = *peers_.back();
  peer.id = static_cast<PeerId>(peers_.size() - 1);
  peer.returns = std::make_shared<ReturnQueue>();
  peer.returns->transport = this;
  peer.returns->peer = peer.id;
  return peer;
}

// ---- connections that we open --------------------------------------------------------------------------------------

Status ZmqTransport::connect(const std::string& address, PeerId* peer) {
  HostPort parsed;
  std::string numeric;
  Status status = parse_address(address, &parsed);
  if (status.ok()) status = resolve(parsed.host, false, &numeric);
  if (status.ok()) status = check_route(numeric, parsed.port);
  if (!status.ok()) return Status::error("can't connect to " + address + ": " + status.message());
  Peer& made = add_peer();
  made.name = "to " + address;
  made.endpoint = "tcp://" + to_address(numeric, parsed.port);
  *peer = made.id;
  open_connection(made);
  return {};
}

void ZmqTransport::open_connection(Peer& peer) {
  peer.dealer = open_socket(ZMQ_DEALER, ends | tries);
  peer.opened_us = loop_.now_us();
  GX_CHECK(zmq_connect(peer.dealer.socket, peer.endpoint.c_str()) == 0, zmq_strerror(errno));
  Hello hello;
  hello.proof = hello_proof(options_.token);
  if (arena_ != nullptr) hello.offer = arena_->offer();
  write_frames(peer, {Bytes(), pack(hello)});
  for (const std::vector<Bytes>& frames : peer.unconfirmed) write_frames(peer, frames);
}

// The connection broke before the welcome: whatever it took with it is sent again on a new one.
void ZmqTransport::reopen_later(Peer& peer) {
  close_socket(&peer.dealer, 0);
  loop_.after(reopen_us, [this, is_alive = is_alive_, id = peer.id] {
    if (*is_alive && peers_[id]->state == Peer::State::greeting) open_connection(*peers_[id]);
  });
}

void ZmqTransport::tell_trouble(Peer& peer, const std::string& why) {
  const bool is_first = peer.trouble.empty();
  peer.trouble = why;
  if (is_first && on_lost_ && !is_closing_)
    on_lost_(peer.id, "no connection " + peer.name + " yet: " + why + "; trying on");
}

// ---- reading -------------------------------------------------------------------------------------------------------

bool ZmqTransport::Socket::append_descriptors(std::vector<pollfd>* descriptors) {
  if (socket == nullptr) return false;
  place = descriptors->size();
  descriptors->push_back({socket_fd, POLLIN, 0});
  descriptors->push_back({monitor_fd, POLLIN, 0});
  if (!is_used) return false;
  int events = 0;
  size_t size = sizeof(events);
  is_used = zmq_getsockopt(socket, ZMQ_EVENTS, &events, &size) != 0 || (events & ZMQ_POLLIN) != 0;
  return is_used;
}

bool ZmqTransport::Socket::is_told(const std::vector<pollfd>& descriptors, bool* has_events) const {
  const bool is_new = place >= descriptors.size();
  *has_events = is_new || descriptors[place + 1].revents != 0;
  return *has_events || is_used || descriptors[place].revents != 0;
}

bool ZmqTransport::append_descriptors(std::vector<pollfd>* descriptors) {
  bool is_ready = router_.append_descriptors(descriptors);
  for (const std::unique_ptr<Peer>& peer : peers_) {
    const bool has_some = peer->dealer.append_descriptors(descriptors);
    is_ready = is_ready || has_some;
    // Only now: it may have been lost by what came through its own pipe.
    if (peer->state == Peer::State::lost && peer->pipe != nullptr && !peer->pipe->has_unsent()) peer->pipe.reset();
    if (peer->pipe == nullptr || !(peer->is_pipe_read || peer->pipe->has_unsent())) continue;
    peer->pipe_place = descriptors->size();
    const int wanted = (peer->is_pipe_read ? POLLIN : 0) | (peer->pipe->has_unsent() ? POLLOUT : 0);
    descriptors->push_back({peer->pipe->fd(), static_cast<short>(wanted), 0});
  }
  // A connection that has ended is judged when it was read.
  for (const std::unique_ptr<Peer>& peer : peers_) {
    if (!peer->is_ending) continue;
    socket_of(*peer).is_used = true;
    is_ready = true;
  }
  return is_ready;
}

void ZmqTransport::read(const std::vector<pollfd>& descriptors) {
  for (size_t i = 0; i < peers_.size() && !is_closed_; ++i) {
    Peer& peer = *peers_[i];
    const size_t place = std::exchange(peer.pipe_place, SIZE_MAX);
    const int told = place < descriptors.size() ? descriptors[place].revents : 0;
    if (peer.pipe == nullptr || told == 0) continue;
    if ((told & POLLOUT) != 0 && !peer.pipe->flush()) end(peer);
    if ((told & ~POLLOUT) == 0) continue;
    if (peer.is_pipe_read) {
      read_pipe(peer);
    } else {
      peer.pipe.reset();  // of a lost peer, which won't read what is left
    }
  }
  read_router(descriptors);
  for (size_t i = 0; i < peers_.size() && !is_closed_; ++i) read_dealer(*peers_[i], descriptors);
}

// False: there is nothing more in it.
bool ZmqTransport::read_pipe(Peer& peer) {
  if (!peer.is_pipe_read || is_closed_) return false;
  const auto take = [&](std::vector<Bytes> frames) { on_frames(peer, std::move(frames)); };
  const LocalPipe::Found found = peer.pipe->receive(max_bytes_a_turn, take);
  if (found == LocalPipe::Found::more) return true;
  if (found == LocalPipe::Found::garbage) refuse("a malformed message in the pipe, " + peer.name);
  if (found != LocalPipe::Found::nothing) {  // the connection's end is told by ZeroMQ too, but perhaps later
    peer.is_pipe_read = false;
    end(peer);
  }
  return false;
}

// Events first: a peer whose end is among them is lost only when its socket has nothing more to read.
void ZmqTransport::read_router(const std::vector<pollfd>& descriptors) {
  bool has_events = false;
  if (router_.socket == nullptr || !router_.is_told(descriptors, &has_events)) return;
  if (has_events) read_router_events();
  router_.is_used = read_messages(router_, nullptr);
  for (size_t i = 0; i < peers_.size() && !router_.is_used; ++i) {
    if (peers_[i]->dealer.socket == nullptr) finish_ended(*peers_[i]);
  }
}

void ZmqTransport::read_dealer(Peer& peer, const std::vector<pollfd>& descriptors) {
  bool has_events = false;
  if (peer.dealer.socket == nullptr || !peer.dealer.is_told(descriptors, &has_events)) return;
  if (has_events) read_dealer_events(peer);
  const bool has_more = peer.dealer.socket != nullptr && read_messages(peer.dealer, &peer);
  peer.dealer.is_used = has_more;
  if (!has_more) finish_ended(peer);
}

bool ZmqTransport::read_event(void* monitor, Event* event) {
  Frame number, endpoint;
  if (zmq_msg_recv(&number.message, monitor, ZMQ_DONTWAIT) < 0) return false;
  zmq_msg_recv(&endpoint.message, monitor, ZMQ_DONTWAIT);
  if (number.size() != 6) return false;
  std::memcpy(&event->kind, number.text().data(), 2);
  std::memcpy(&event->value, number.text().data() + 2, 4);
  return true;
}

void ZmqTransport::read_router_events() {
  Event event;
  while (!is_closed_ && read_event(router_.monitor, &event)) {
    if (is_handshake_failure(event.kind)) {
      is_failure_told_ = true;  // its end is the next event
      refuse("a connection to " + address_ + " spoke something else");
    } else if (event.kind == ZMQ_EVENT_ACCEPTED) {
      accepted_[event.value] = {};
    } else if (event.kind == ZMQ_EVENT_DISCONNECTED) {
      on_disconnected(event.value);
    }
  }
}

void ZmqTransport::on_disconnected(int fd) {
  const auto found = accepted_.find(fd);
  const Accepted connection = found == accepted_.end() ? Accepted{} : found->second;
  if (connection.is_peer) {
    end(*peers_[connection.peer]);
  } else if (!connection.is_refused && !is_failure_told_) {
    refuse("a connection to " + address_ + " that said nothing we know");
  }
  accepted_.erase(fd);
  is_failure_told_ = false;
}

void ZmqTransport::read_dealer_events(Peer& peer) {
  Event event;
  while (peer.dealer.socket != nullptr && read_event(peer.dealer.monitor, &event)) {
    if (event.kind == ZMQ_EVENT_CONNECT_RETRIED && peer.state == Peer::State::greeting) {
      const bool is_quick = loop_.now_us() - peer.opened_us < quick_failure_us;
      tell_trouble(peer, is_quick ? "connection refused" : "no answer");
    } else if (is_handshake_failure(event.kind) && peer.state == Peer::State::greeting) {
      tell_trouble(peer, "who listens there is no node of ours");
    } else if (event.kind == ZMQ_EVENT_DISCONNECTED) {
      end(peer);
    }
  }
}

bool ZmqTransport::read_messages(Socket& from, Peer* dealer_of) {
  size_t bytes = 0;
  for (int i = 0; i < max_messages_a_turn && bytes < max_bytes_a_turn; ++i) {
    Frames frames;
    if (!receive_frames(from.socket, &frames)) return false;
    for (const std::shared_ptr<Frame>& frame : frames) bytes += frame->size();
    if (frames.size() > max_frames) {
      refuse("a message of " + std::to_string(frames.size()) + " frames");
    } else if (dealer_of != nullptr) {
      take_zmq(*dealer_of, frames, 0);
    } else {
      const auto found = by_routing_id_.find(std::string(frames[0]->text()));
      if (found == by_routing_id_.end()) {
        on_stranger(frames);
      } else if (frames.size() > 1) {
        take_zmq(*peers_[found->second], frames, 1);
      }
    }
    if (is_closed_ || (dealer_of != nullptr && dealer_of->dealer.socket == nullptr)) return false;
  }
  return true;
}

bool ZmqTransport::receive_frames(void* socket, Frames* frames) {
  do {
    auto frame = std::make_shared<Frame>();
    if (zmq_msg_recv(&frame->message, socket, ZMQ_DONTWAIT) < 0) return false;
    frames->push_back(std::move(frame));
  } while (zmq_msg_more(&frames->back()->message));
  return true;
}

void ZmqTransport::take_zmq(Peer& peer, const Frames& frames, size_t first) {
  std::vector<Bytes> contents;
  for (size_t i = first; i < frames.size(); ++i) contents.push_back(Frame::bytes(frames[i]));
  on_frames(peer, std::move(contents));
}

// ---- strangers and greetings ---------------------------------------------------------------------------------------

void ZmqTransport::refuse(const std::string& why) {
  if (on_refused_ && !is_closing_) on_refused_(why);
}

void ZmqTransport::on_stranger(const Frames& frames) {
  read_router_events();  // of a connection that was just accepted the event is there already
  const std::string_view id = frames[0]->text();
  const std::string host = frames.size() > 1 ? frames[1]->peer_host() : "";
  const auto connection = accepted_.find(frames.size() > 1 ? zmq_msg_get(&frames[1]->message, ZMQ_SRCFD) : -1);
  if (connection != accepted_.end()) connection->second.is_refused = true;
  // A chosen identity could take over another's connection; ZeroMQ's own begin with a zero and have five bytes.
  if (id.size() != 5 || id[0] != 0) return refuse("a connection from " + host + " that chose its own identity");
  const bool is_greeting = frames.size() == 3 && frames[1]->size() == 0;
  const auto hello = is_greeting ? parse_hello(Frame::bytes(frames[2])) : std::nullopt;
  if (!hello) return refuse("a message from " + host + " that said no hello");

  const std::string why = why_not(*hello, host);
  if (why.empty()) return greet(frames, *hello, host);
  Peer unwanted;
  unwanted.routing_id = std::string(id);
  write_frames(unwanted, {Bytes(), pack(Refusal{why})});
  refuse("a connection from " + host + ": " + why);
}

std::string ZmqTransport::why_not(const Hello& hello, const std::string& host) const {
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

void ZmqTransport::greet(const Frames& frames, const Hello& hello, const std::string& host) {
  Peer& peer = add_peer();
  peer.name = "from " + host;
  peer.routing_id = std::string(frames[0]->text());
  peer.state = Peer::State::open;
  by_routing_id_[peer.routing_id] = peer.id;
  watch(peer, zmq_msg_get(&frames[1]->message, ZMQ_SRCFD));

  if (arena_ != nullptr) peer.memory = ForeignMemory::open(hello.offer, mapped_pages_);
  Welcome welcome;
  welcome.proof = welcome_proof(options_.token);
  if (arena_ != nullptr) welcome.offer = arena_->offer();
  welcome.can_read_yours = peer.memory != nullptr;
  send_internal(peer, pack(welcome));
}

// Its end will be told by the number of its socket. What has happened to that number before, the greeting itself
// excepted, is among the events already.
void ZmqTransport::watch(Peer& peer, int fd) {
  const auto connection = accepted_.find(fd);
  if (connection == accepted_.end()) return end(peer);
  if (connection->second.is_peer) end(*peers_[connection->second.peer]);
  connection->second.is_peer = true;
  connection->second.peer = peer.id;
}

void ZmqTransport::on_welcome(Peer& peer, const Welcome& welcome) {
  if (!is_equal(welcome.proof, welcome_proof(options_.token))) {
    return lose(peer, "the connection " + peer.name + " is refused: who listens there doesn't know this run's token");
  }
  peer.state = Peer::State::open;
  peer.trouble.clear();
  peer.unconfirmed.clear();
  peer.can_read_ours = arena_ != nullptr && welcome.can_read_yours;
  if (arena_ != nullptr) peer.memory = ForeignMemory::open(welcome.offer, mapped_pages_);
  if (peer.memory != nullptr && !peer.is_leaving) send_internal(peer, pack(CanRead{}));
}

// ---- what peers send -----------------------------------------------------------------------------------------------

void ZmqTransport::on_frames(Peer& peer, std::vector<Bytes> frames) {
  if (peer.state == Peer::State::lost) return;
  if (frames[0].empty()) return on_internal(peer, frames);
  if (peer.state != Peer::State::open) return refuse("a message without a welcome before it, " + peer.name);
  Message message;
  message.head = std::move(frames[0]);
  message.attachments.assign(std::make_move_iterator(frames.begin() + 1), std::make_move_iterator(frames.end()));
  frames.clear();
  deliver(peer, std::move(message));
}

void ZmqTransport::on_internal(Peer& peer, const std::vector<Bytes>& frames) {
  const Bytes content = frames.size() > 1 ? frames[1] : Bytes();
  const bool is_alone = frames.size() == 2;
  if (is_alone && peer.state == Peer::State::greeting) {
    if (const auto welcome = parse_welcome(content)) return on_welcome(peer, *welcome);
    if (const auto refusal = parse_refusal(content)) {
      return lose(peer, "the connection " + peer.name + " is refused by the node there: " + refusal->why);
    }
  } else if (is_alone && on_control(peer, content)) {
    return;
  } else if (peer.state == Peer::State::open && frames.size() > 2) {
    return on_blocks(peer, frames);
  }
  refuse("a malformed message of the transport, " + peer.name);
}

bool ZmqTransport::on_control(Peer& peer, const Bytes& content) {
  if (is_can_read(content)) {
    peer.can_read_ours = arena_ != nullptr;
    if (peer.can_read_ours && peer.memory != nullptr) offer_pipe(peer);
  } else if (const auto returns = parse_returns(content)) {
    for (uint64_t loan : returns->loans) peer.loans.erase(loan);
  } else if (const auto offer = parse_pipe_offer(content); offer && arena_ != nullptr && peer.pipe == nullptr) {
    open_pipe(peer, *offer);
  } else if (is_pipe_follows(content) && !peer.is_pipe_read) {
    on_pipe_follows(peer);
  } else if (is_bye(content)) {
    on_bye(peer);
  } else if (is_bye_too(content) && peer.is_leaving) {
    lose(peer, "it was left");
  } else {
    return false;
  }
  return true;
}

void ZmqTransport::offer_pipe(Peer& peer) {
  if (pipe_listener_ == nullptr) pipe_listener_ = PipeListener::create();
  if (pipe_listener_ == nullptr || !peer.pipe_offer.name.empty()) return;
  peer.pipe_offer = pipe_listener_->offer();
  if (!peer.pipe_offer.name.empty()) send_internal(peer, pack(peer.pipe_offer));
}

// Where it can't be opened, all stays as it is. After the goodbye nothing new begins: the other side may be gone.
void ZmqTransport::open_pipe(Peer& peer, const PipeOffer& offer) {
  if (peer.is_leaving) return;
  std::unique_ptr<LocalPipe> pipe = LocalPipe::connect(offer);
  if (pipe == nullptr) return;
  send_internal(peer, pack(PipeFollows{}));
  peer.pipe = std::move(pipe);
}

// From who opened it: it waits at our listener. From the other side: it has found it.
void ZmqTransport::on_pipe_follows(Peer& peer) {
  if (peer.pipe == nullptr && !peer.pipe_offer.name.empty()) {
    std::unique_ptr<LocalPipe> pipe = pipe_listener_->accept(peer.pipe_offer);
    if (pipe != nullptr) send_internal(peer, pack(PipeFollows{}));
    peer.pipe = std::move(pipe);
  }
  if (peer.pipe == nullptr) return lose(peer, "the connection " + peer.name + " is lost: its pipe was not found");
  peer.is_pipe_read = true;
}

// When both leave at once, each still waits for the other's answer.
void ZmqTransport::on_bye(Peer& peer) {
  send_internal(peer, pack(ByeToo{}));
  if (!peer.is_leaving) {
    lose(peer, "the connection " + peer.name + " is lost: the other side closed it", options_.linger_ms);
  }
}

// The attachments that lie in shared memory take their places among those that came through the socket.
void ZmqTransport::on_blocks(Peer& peer, const std::vector<Bytes>& frames) {
  const auto parsed = parse_blocks(frames[1]);
  if (!parsed || peer.memory == nullptr) return refuse("a malformed reference to shared memory, " + peer.name);
  Message message;
  message.head = frames[2];
  size_t next_frame = 3, next_block = 0;
  while (next_block < parsed->blocks.size() || next_frame < frames.size()) {
    const size_t place = message.attachments.size();
    if (next_block < parsed->blocks.size() && parsed->blocks[next_block].attachment == place) {
      const BlockReference& block = parsed->blocks[next_block++];
      Bytes view;
      const auto release = [returns = peer.returns, loan = block.loan] { returns->add(loan); };
      const Status status = peer.memory->view(block, release, &view);
      if (!status.ok()) return refuse(status.message() + ", " + peer.name);
      message.attachments.push_back(std::move(view));
    } else if (next_frame < frames.size()) {
      message.attachments.push_back(frames[next_frame++]);
    } else {
      return refuse("a reference to shared memory for attachment " +
                    std::to_string(parsed->blocks[next_block].attachment) + " of " + std::to_string(place) + ", " +
                    peer.name);
    }
  }
  deliver(peer, std::move(message));
}

void ZmqTransport::deliver(Peer& peer, Message message) {
  peer.is_known = true;
  if (receiver_ && !is_closing_) receiver_(peer.id, 0, std::move(message));
}

// ---- ends ----------------------------------------------------------------------------------------------------------

// What it sent before its end is read first: the welcome, or why it went.
void ZmqTransport::end(Peer& peer) {
  if (peer.state == Peer::State::lost) return;
  peer.is_ending = true;
}

void ZmqTransport::finish_ended(Peer& peer) {
  if (!peer.is_ending || is_closed_ || read_pipe(peer)) return;
  if (peer.state == Peer::State::lost) return;
  peer.is_ending = false;
  const std::string why = "the other side closed it";
  if (peer.state == Peer::State::open) return lose(peer, "the connection " + peer.name + " is lost: " + why);
  if (peer.state != Peer::State::greeting) return;
  if (is_closing_) return lose(peer, why);
  reopen_later(peer);
  tell_trouble(peer, why);
}

void ZmqTransport::lose(Peer& peer, const std::string& why, int linger_ms) {
  if (peer.state == Peer::State::lost) return;
  peer.state = Peer::State::lost;
  peer.is_leaving = false;
  peer.is_ending = false;
  close_socket(&peer.dealer, linger_ms);
  peer.is_pipe_read = false;
  by_routing_id_.erase(peer.routing_id);
  peer.unconfirmed.clear();
  peer.loans.clear();
  const bool is_told = peer.is_known || !peer.endpoint.empty();
  if (is_told && on_lost_ && !is_closing_) on_lost_(peer.id, why);
}

// ---- sending -------------------------------------------------------------------------------------------------------

void ZmqTransport::send(PeerId id, uint8_t channel, Message message) {
  GX_CHECK(channel == 0 || channel == kBulk, "ZeroMQ over TCP has reliable channels alone");
  GX_CHECK(!message.head.empty(), "a message has a head");
  Peer& peer = *peers_[id];
  if (peer.state == Peer::State::lost || is_closed_) return;
  peer.is_known = true;
  std::vector<Bytes> frames;
  if (peer.can_read_ours) lend_attachments(peer, &message, &frames);
  frames.push_back(std::move(message.head));
  for (Bytes& attachment : message.attachments) frames.push_back(std::move(attachment));
  send_frames(peer, std::move(frames));
}

Bytes ZmqTransport::allocate(PeerId id, size_t size) {
  const bool is_shared = size >= shared_from_bytes && peers_[id]->can_read_ours;
  return is_shared ? arena_->allocate(size) : Bytes::allocate(size);
}

Bytes ZmqTransport::shared_copy(const Bytes& bytes) {
  for (const auto& [source, copy] : copies_) {
    if (source.data() == bytes.data() && source.size() == bytes.size()) return copy;
  }
  Bytes copy = arena_->allocate(bytes.size());
  std::memcpy(copy.writable(), bytes.data(), bytes.size());
  if (copies_.empty()) {
    loop_.post([this, is_alive = is_alive_] {
      if (*is_alive) copies_.clear();
    });
  }
  copies_.emplace_back(bytes, copy);
  return copy;
}

// Takes the large attachments out of the message; what stands for them goes before it.
void ZmqTransport::lend_attachments(Peer& peer, Message* message, std::vector<Bytes>* frames) {
  Blocks lent;
  std::vector<Bytes> others;
  for (size_t i = 0; i < message->attachments.size(); ++i) {
    Bytes& bytes = message->attachments[i];
    BlockReference block;
    if (bytes.size() >= shared_from_bytes && !arena_->find(bytes, &block.fd, &block.offset)) {
      Bytes copy = shared_copy(bytes);
      if (arena_->find(copy, &block.fd, &block.offset)) bytes = std::move(copy);
    }
    if (block.fd < 0) {
      others.push_back(std::move(bytes));
      continue;
    }
    block.loan = ++last_loan_;
    block.attachment = static_cast<uint32_t>(i);
    block.size = bytes.size();
    lent.blocks.push_back(block);
    peer.loans.emplace(block.loan, std::move(bytes));
  }
  message->attachments = std::move(others);
  if (lent.blocks.empty()) return;
  frames->push_back(Bytes());
  frames->push_back(pack(lent));
}

void ZmqTransport::flush_returns(PeerId id) {
  Peer& peer = *peers_[id];
  Returns returns;
  {
    std::lock_guard<std::mutex> lock(peer.returns->mutex);
    returns.loans.swap(peer.returns->loans);
  }
  if (peer.state == Peer::State::open && !returns.loans.empty()) send_internal(peer, pack(returns));
}

void ZmqTransport::send_internal(Peer& peer, Bytes content) { send_frames(peer, {Bytes(), std::move(content)}); }

void ZmqTransport::send_frames(Peer& peer, std::vector<Bytes> frames) {
  if (!write_frames(peer, frames)) {
    end(peer);
  } else if (peer.state == Peer::State::greeting) {
    peer.unconfirmed.push_back(std::move(frames));
  }
}

// False: nobody is at the other end any more. Between two tries to connect there is no socket; the frames are sent
// when there is one again.
bool ZmqTransport::write_frames(Peer& peer, const std::vector<Bytes>& frames) {
  if (peer.pipe != nullptr) return peer.pipe->send(frames);
  Socket& used = socket_of(peer);
  void* socket = used.socket;
  if (socket == nullptr) return peer.state == Peer::State::greeting;
  used.is_used = true;
  if (!peer.routing_id.empty() &&
      zmq_send(socket, peer.routing_id.data(), peer.routing_id.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
    return false;
  }
  for (size_t i = 0; i < frames.size(); ++i) {
    zmq_msg_t frame;
    init_frame(&frame, frames[i]);
    const int flags = ZMQ_DONTWAIT | (i + 1 < frames.size() ? ZMQ_SNDMORE : 0);
    if (zmq_msg_send(&frame, socket, flags) >= 0) continue;
    zmq_msg_close(&frame);
    return false;
  }
  return true;
}

size_t ZmqTransport::overhead(const Message& message) const {
  const auto header = [](const Bytes& frame) { return frame.size() < 256 ? size_t{2} : size_t{9}; };
  size_t total = header(message.head);
  for (const Bytes& attachment : message.attachments) total += header(attachment);
  return total;
}

}  // namespace geomx
