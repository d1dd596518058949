// See zmq_transport.h.
#include "zmq_transport.h"

#include <algorithm>

#include "address.h"

namespace geomx {

ZmqTransport::ZmqTransport(Loop& loop, ZmqOptions options) : shared_(loop, std::move(options), door_events()) {
  keep_large_blocks();
  loop.add(this);
}

ZmqTransport::~ZmqTransport() { close(); }

ZmqDoor::Events ZmqTransport::door_events() {
  ZmqDoor::Events events;
  events.on_hello = [this](const std::string& routing_id, const std::string& host, const Hello& hello) {
    ZmqPeer& peer = add_peer();
    peer.welcome(routing_id, host, hello);
    return peer.id();
  };
  events.on_frames = [this](PeerId peer, std::vector<Bytes> frames) { peers_[peer]->take(std::move(frames)); };
  events.on_end = [this](PeerId peer) { peers_[peer]->end(); };
  events.on_refused = [this](const std::string& why) { shared_.refuse(why); };
  return events;
}

ZmqPeer& ZmqTransport::add_peer() {
  peers_.push_back(std::make_unique<ZmqPeer>(shared_, static_cast<PeerId>(peers_.size())));
  return *peers_.back();
}

void ZmqTransport::receive(Receiver receiver, OnRefused on_refused, OnLost on_lost) {
  shared_.receiver = std::move(receiver);
  shared_.on_refused = std::move(on_refused);
  shared_.on_lost = std::move(on_lost);
}

Status ZmqTransport::bind(const std::string& host, uint16_t port) {
  GX_CHECK(!shared_.is_closed, "a transport listens before it is closed");
  return shared_.door.bind(host, port);
}

Status ZmqTransport::connect(const std::string& address, PeerId* peer) {
  HostPort parsed;
  std::string numeric;
  Status status = parse_address(address, &parsed);
  if (status.ok()) status = resolve(parsed.host, false, &numeric);
  if (status.ok()) status = check_route(numeric, parsed.port);
  if (!status.ok()) return Status::error("can't connect to " + address + ": " + status.message());
  ZmqPeer& made = add_peer();
  *peer = made.id();
  made.connect(address, "tcp://" + to_address(numeric, parsed.port));
  return {};
}

void ZmqTransport::send(PeerId peer, uint8_t channel, Message message) {
  GX_CHECK(channel == 0 || channel == kBulk, "ZeroMQ over TCP has reliable channels alone");
  GX_CHECK(!message.head.empty(), "a message has a head");
  if (!shared_.is_closed) peers_[peer]->send(std::move(message));
}

size_t ZmqTransport::overhead(const Message& message) const {
  const auto header = [](const Bytes& frame) { return frame.size() < 256 ? size_t{2} : size_t{9}; };
  size_t total = header(message.head);
  for (const Bytes& attachment : message.attachments) total += header(attachment);
  return total;
}

// ---- reading -------------------------------------------------------------------------------------------------------

bool ZmqTransport::append_descriptors(std::vector<pollfd>* descriptors) {
  bool is_ready = shared_.door.append_descriptors(descriptors);
  for (const std::unique_ptr<ZmqPeer>& peer : peers_) {
    const bool has_some = peer->append_descriptors(descriptors);
    is_ready = is_ready || has_some;
  }
  return is_ready;
}

// By number: what is read adds peers, and may close the transport.
void ZmqTransport::read(const std::vector<pollfd>& descriptors) {
  for (size_t i = 0; i < peers_.size() && !shared_.is_closed; ++i) peers_[i]->read_pipe(descriptors);
  const bool was_read = shared_.door.read(descriptors);
  for (size_t i = 0; i < peers_.size() && was_read && !shared_.door.has_more(); ++i) {
    if (!peers_[i]->has_socket()) peers_[i]->finish_ended();
  }
  for (size_t i = 0; i < peers_.size() && !shared_.is_closed; ++i) peers_[i]->read_socket(descriptors);
}

// ---- closing -------------------------------------------------------------------------------------------------------

void ZmqTransport::close() {
  if (shared_.is_closing) return;
  shared_.is_closing = true;
  say_goodbye();
  shared_.is_closed = true;
  shared_.loop.remove(this);
  for (const std::unique_ptr<ZmqPeer>& peer : peers_) peer->close();
  shared_.door.close();
}

// Reads on, and drops what it reads, until all have answered or time is up.
void ZmqTransport::say_goodbye() {
  if (shared_.options.linger_ms == 0) return;
  const uint64_t deadline_us = shared_.loop.now_us() + static_cast<uint64_t>(shared_.options.linger_ms) * 1000;
  for (const std::unique_ptr<ZmqPeer>& peer : peers_) peer->say_goodbye();
  const auto is_waiting = [](const std::unique_ptr<ZmqPeer>& peer) { return peer->is_leaving(); };
  while (std::any_of(peers_.begin(), peers_.end(), is_waiting)) {
    const uint64_t now_us = shared_.loop.now_us();
    if (now_us >= deadline_us) return;
    std::vector<pollfd> descriptors;
    const bool is_ready = append_descriptors(&descriptors);
    poll(descriptors.data(), descriptors.size(), is_ready ? 0 : static_cast<int>((deadline_us - now_us) / 1000 + 1));
    read(descriptors);
  }
}

}  // namespace geomx
