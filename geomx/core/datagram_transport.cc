// See datagram_transport.h.
#include "datagram_transport.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "address.h"

namespace geomx {
namespace {

// What is tried, IP and UDP headers excluded: Ethernet over IPv4, over IPv6, common tunnels, what IPv6 promises.
constexpr size_t kSizes[] = {1472, 1452, 1372, 1232};
constexpr size_t kLeastPacket = 1232, kMostPacket = 2048;
constexpr int kQuickProbes = 10;
constexpr uint64_t kProbeUs = 200'000, kSlowProbeUs = 5'000'000;
constexpr uint64_t kProbeAgainUs = 60'000'000;              // of a path that is up: it may have become wider
constexpr size_t kUsualHeader = kPacketHeader + 2 + 3 + 9;  // of a packet with one chunk
constexpr int kBatch = 64;
constexpr int kSocketBytes = 4 << 20;
constexpr int kBufferShares = 8;  // the kernel counts a datagram double and more, and peers share the socket

}  // namespace

struct DatagramTransport::Session {
  std::string host;      // of peers that we connected to; others are learnt from their datagrams
  uint64_t own_key = 0;  // the peer shows it
  bool has_offered = false;
  DatagramOffer theirs;  // port 0: none yet
  Endpoint to;
  std::unique_ptr<DatagramFlow> flow;
  bool is_up = false, had_room = true;
  size_t max_packet = 0;  // that got through
  int probes = 0;
  bool is_probing = false, is_warned = false;
};

DatagramTransport::DatagramTransport(Loop& loop, std::unique_ptr<Transport> stream)
    : TransportOver(std::move(stream)), loop_(loop) {}

DatagramTransport::~DatagramTransport() { close(); }

DatagramTransport::Session& DatagramTransport::session_of(PeerId peer) {
  std::unique_ptr<Session>& session = sessions_[peer];
  if (!session) session = std::make_unique<Session>();
  return *session;
}

DatagramTransport::Session* DatagramTransport::up(PeerId peer) const {
  const auto found = sessions_.find(peer);
  return found != sessions_.end() && found->second->is_up ? found->second.get() : nullptr;
}

Status DatagramTransport::connect(const std::string& address, PeerId* peer) {
  const Status status = inner_->connect(address, peer);
  if (!status.ok()) return status;
  HostPort parsed;
  Session& session = session_of(*peer);
  if (parse_address(address, &parsed).ok()) (void)resolve(parsed.host, false, &session.host);
  if (num_channels_ != 0) offer_to(*peer, session);
  return status;
}

void DatagramTransport::take_in(PeerId from, uint8_t channel, Message message) {
  if (is_datagram_offer(message.head)) return take_offer(from, message);
  TransportOver::take_in(from, channel, std::move(message));
}

// ---- meeting -------------------------------------------------------------------------------------------------------

int DatagramTransport::open_channel(uint8_t channel) {
  const int fd = open_socket(SOCK_DGRAM, &family_);
  if (fd < 0) return fd;
  set_option(fd, SOL_SOCKET, SO_RCVBUF, kSocketBytes);
  set_option(fd, SOL_SOCKET, SO_SNDBUF, kSocketBytes);
  set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);  // never cut up on the way
  set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
  mark_priority(fd, channel, num_channels_);
  return fd;
}

Status DatagramTransport::open_channels(const LossyChannels& channels) {
  if (channels.are_streams) return inner_->open_channels(channels);
  if (num_channels_ != 0 || channels.count == 0) return {};
  num_channels_ = channels.count;
  for (uint8_t channel = 0; channel <= num_channels_; ++channel) {
    const int fd = open_channel(channel);
    if (fd < 0) return Status::error(std::string("no UDP socket: ") + std::strerror(errno));
    sockets_.push_back(fd);
  }
  set_option(sockets_[0], SOL_SOCKET, SO_TIMESTAMPNS, 1);
  buffer_ = receive_buffer(sockets_[0]) / kBufferShares;
  port_ = bind_any_port(sockets_[0], family_);
  if (port_ == 0) return Status::error(std::string("no port for UDP: ") + std::strerror(errno));
  loop_.add(this);
  for (auto& [peer, session] : sessions_)
    if (!session->host.empty() || session->theirs.port != 0) offer_to(peer, *session);
  return {};
}

void DatagramTransport::offer_to(PeerId peer, Session& session) {
  if (session.has_offered || inner_->is_lost(peer)) return;
  session.has_offered = true;
  session.own_key = random_key();
  by_key_[session.own_key] = peer;
  inner_->send(peer, 0, Message{pack(DatagramOffer{port_, session.own_key, buffer_}), {}});
  begin(peer, session);
}

void DatagramTransport::take_offer(PeerId peer, const Message& message) {
  const std::optional<DatagramOffer> offer = parse_datagram_offer(message.head);
  if (!offer || !message.attachments.empty()) {
    return refuse("a malformed offer of datagrams");
  }
  Session& session = session_of(peer);
  if (session.theirs.port != 0) return;
  session.theirs = *offer;
  if (num_channels_ == 0) return;  // answered when we open ours, if ever
  offer_to(peer, session);
  begin(peer, session);
}

// Once both offers are there.
void DatagramTransport::begin(PeerId peer, Session& session) {
  if (session.flow || !session.has_offered || session.theirs.port == 0) return;
  session.flow = std::make_unique<DatagramFlow>(
      session.theirs.key, kLeastPacket,
      [this, s = &session](uint8_t channel, const std::vector<uint8_t>& datagram) { write(*s, channel, datagram); },
      [this, peer](uint8_t channel, Message message) {
        if (receiver_ && !is_closed_) receiver_(peer, channel == 0 ? kBulk : channel, std::move(message));
      });
  session.flow->set_their_buffer(session.theirs.buffer);
  if (!session.host.empty()) session.to = Endpoint::of(session.host, session.theirs.port, family_);
  if (session.to.is_known()) probe(peer);
}

// ---- is the path there, and how wide -------------------------------------------------------------------------------

void DatagramTransport::probe(PeerId peer) {
  Session& session = session_of(peer);
  if (is_closed_ || inner_->is_lost(peer)) return;
  session.is_probing = true;
  ++session.probes;
  for (size_t size : kSizes) {
    Packet packet;
    packet.kind = PacketKind::probe;
    packet.key = session.theirs.key;
    packet.time = loop_.now_us();
    packet.size = size;
    write(session, 0, write_packet(packet));
  }
  if (session.probes == kQuickProbes && !session.is_up && !session.is_warned) {
    session.is_warned = true;
    refuse("datagrams don't get through to " + session.host + " (UDP port " + std::to_string(session.theirs.port) +
           "; is it blocked?), so everything takes the stream");
  }
  const uint64_t wait_us = session.is_up ? kProbeAgainUs : session.probes < kQuickProbes ? kProbeUs : kSlowProbeUs;
  loop_.after(wait_us, [this, peer, is_alive = is_alive_] {
    if (*is_alive) probe(peer);
  });
}

void DatagramTransport::take_reply(PeerId peer, Session& session, const Packet& packet, uint64_t now_us) {
  if (packet.size < kLeastPacket || packet.size > kMostPacket || packet.time > now_us) return;
  session.flow->note_rtt(std::max<uint64_t>(now_us - packet.time, 1), now_us);
  if (packet.size > session.max_packet) {
    session.max_packet = packet.size;
    session.flow->set_max_packet(packet.size);
  }
  if (!session.is_up) set_up(peer, session, true);
}

void DatagramTransport::set_up(PeerId peer, Session& session, bool is_up) {
  session.is_up = is_up;
  session.probes = is_up ? session.probes : 0;
  tell_room(peer);
}

// The path has died, the stream hasn't.
void DatagramTransport::fall_back(PeerId peer, Session& session) {
  set_up(peer, session, false);
  session.max_packet = 0;
  refuse("datagrams don't get through any more, so everything takes the stream");
  for (Message& message : session.flow->take_unacknowledged()) inner_->send(peer, kBulk, std::move(message));
  probe(peer);
}

void DatagramTransport::lose(PeerId peer, const std::string& why) {
  const auto found = sessions_.find(peer);
  if (found != sessions_.end() && inner_->is_lost(peer)) {
    by_key_.erase(found->second->own_key);
    found->second->is_up = false;
    if (found->second->flow) (void)found->second->flow->take_unacknowledged();
  }
  TransportOver::lose(peer, why);
}

// ---- sending -------------------------------------------------------------------------------------------------------

void DatagramTransport::send(PeerId peer, uint8_t channel, Message message) {
  Session* const session = channel == 0 ? nullptr : up(peer);
  if (session == nullptr) {
    // A lossy channel that has just gone: late is better than lost.
    const bool is_gone = num_channels_ != 0 && channel != 0;
    return inner_->send(peer, is_gone ? kBulk : channel, std::move(message));
  }
  const uint64_t now_us = loop_.now_us();
  session->flow->send(channel == kBulk ? 0 : std::min(channel, num_channels_), message, now_us);
  session->flow->run(now_us);
  session->had_room = session->flow->room() > 0;
  arm();
}

size_t DatagramTransport::max_datagram(PeerId peer) const {
  const Session* const session = up(peer);
  return session == nullptr ? inner_->max_datagram(peer) : session->flow->max_message();
}

size_t DatagramTransport::overhead_to(PeerId peer, uint8_t channel, const Message& message) const {
  const Session* const session = channel == 0 ? nullptr : up(peer);
  if (session == nullptr) return inner_->overhead_to(peer, channel, message);
  const size_t sizes = 2 + 3 * message.attachments.size(), most = session->flow->max_message();
  return sizes + (message.size() + sizes + most - 1) / most * kUsualHeader;
}

size_t DatagramTransport::room(PeerId peer, uint8_t channel) const {
  const Session* const session = up(peer);
  return session == nullptr ? inner_->room(peer, channel) : session->flow->room();
}

// What the socket doesn't take is lost, as on the way.
void DatagramTransport::write(Session& session, uint8_t channel, const std::vector<uint8_t>& datagram) {
  if (!session.to.is_known() || is_closed_) return;
  const int fd = sockets_[std::min<size_t>(channel, sockets_.size() - 1)];
  const ssize_t written = sendto(fd, datagram.data(), datagram.size(), MSG_DONTWAIT, session.to.get(), session.to.size);
  if (written < 0 && errno == EMSGSIZE) ++too_large_;
}

void DatagramTransport::run(PeerId peer, Session& session, uint64_t now_us) {
  if (!session.flow) return;
  session.flow->run(now_us);
  if (session.is_up && session.flow->is_stuck(now_us)) return fall_back(peer, session);
  const bool has_room = session.flow->room() > 0;
  if (has_room && !session.had_room && session.is_up) tell_room(peer);
  session.had_room = has_room;
}

void DatagramTransport::arm() {
  uint64_t next_us = 0;
  for (const auto& [peer, session] : sessions_) {
    const uint64_t at_us = session->flow ? session->flow->next_us() : 0;
    if (at_us != 0 && (next_us == 0 || at_us < next_us)) next_us = at_us;
  }
  if (next_us == timer_us_) return;
  if (timer_us_ != 0) loop_.cancel(timer_);
  timer_us_ = next_us;
  if (next_us == 0) return;
  timer_ = loop_.at(next_us, [this, is_alive = is_alive_] {
    if (!*is_alive) return;
    timer_us_ = 0;
    const uint64_t now_us = loop_.now_us();
    for (auto& [peer, session] : sessions_)
      if (session->flow && session->flow->next_us() != 0 && session->flow->next_us() <= now_us)
        run(peer, *session, now_us);
    arm();
  });
}

// ---- receiving -----------------------------------------------------------------------------------------------------

bool DatagramTransport::append_descriptors(std::vector<pollfd>* descriptors) {
  place_ = descriptors->size();
  descriptors->push_back({sockets_[0], POLLIN, 0});
  return false;
}

void DatagramTransport::read(const std::vector<pollfd>& descriptors) {
  if (sockets_.empty() || descriptors.size() <= place_ || descriptors[place_].fd != sockets_[0] ||
      descriptors[place_].revents == 0)
    return;
  static thread_local uint8_t buffers[kBatch][kMostPacket];
  mmsghdr messages[kBatch] = {};
  iovec vectors[kBatch];
  Endpoint from[kBatch];
  alignas(cmsghdr) uint8_t times[kBatch][CMSG_SPACE(sizeof(timespec))];
  for (int i = 0; i < kBatch; ++i) {
    vectors[i] = {buffers[i], kMostPacket};
    messages[i].msg_hdr.msg_iov = &vectors[i];
    messages[i].msg_hdr.msg_iovlen = 1;
    messages[i].msg_hdr.msg_name = &from[i].address;
    messages[i].msg_hdr.msg_namelen = sizeof(from[i].address);
    messages[i].msg_hdr.msg_control = times[i];
    messages[i].msg_hdr.msg_controllen = sizeof(times[i]);
  }
  const int count = recvmmsg(sockets_[0], messages, kBatch, MSG_DONTWAIT, nullptr);
  if (count <= 0) return;
  for (int i = 0; i < count && !is_closed_; ++i) {
    from[i].size = messages[i].msg_hdr.msg_namelen;
    if ((messages[i].msg_hdr.msg_flags & MSG_TRUNC) != 0) continue;
    const uint64_t read_us = loop_.now_us();
    take(buffers[i], messages[i].msg_len, from[i], read_us - std::min(age_us(messages[i].msg_hdr), read_us));
  }
  if (is_closed_) return;
  std::vector<PeerId> touched;
  touched.swap(touched_);
  const uint64_t now_us = loop_.now_us();
  for (PeerId peer : touched) run(peer, *sessions_[peer], now_us);
  arm();
}

void DatagramTransport::take(const uint8_t* data, size_t size, const Endpoint& from, uint64_t arrived_us) {
  const uint64_t now_us = loop_.now_us();
  const std::optional<Packet> packet = parse_packet(data, size);
  const auto known = packet ? by_key_.find(packet->key) : by_key_.end();
  if (known == by_key_.end()) {
    ++strangers_;
    return refuse(packet ? "a datagram that shows no key of ours" : "a malformed datagram");
  }
  const PeerId peer = known->second;
  Session& session = *sessions_[peer];
  if (!session.flow) return;
  if (touched_.empty() || touched_.back() != peer) touched_.push_back(peer);
  switch (packet->kind) {
    case PacketKind::probe: {
      // Behind an address translator a peer is where its datagrams come from.
      if (session.host.empty() && (!session.to.is_known() || session.to != from)) session.to = from;
      Packet reply;
      reply.kind = PacketKind::reply;
      reply.key = session.theirs.key;
      reply.time = packet->time;
      reply.size = packet->size;
      write(session, 0, write_packet(reply));
      if (!session.is_probing) probe(peer);
      return;
    }
    case PacketKind::reply:
      return take_reply(peer, session, *packet, now_us);
    case PacketKind::data:
      if (loss_ != 0 && double(random_key() >> 11) < loss_ * double(uint64_t(1) << 53)) return;
      return session.flow->take_data(*packet, now_us, arrived_us);
    case PacketKind::ack:
      return session.flow->take_ack(*packet, now_us, arrived_us);
  }
}

std::map<std::string, double> DatagramTransport::figures() const {
  std::map<std::string, double> out = inner_->figures();
  if (num_channels_ == 0) return out;
  for (const auto& [peer, session] : sessions_) {
    if (!session->flow) continue;
    const DatagramFlow::Figures f = session->flow->figures();
    out["datagrams.sent"] += double(f.packets);
    out["datagrams.bytes"] += double(f.bytes);
    out["datagrams.lost"] += double(f.lost_packets);
    out["datagrams.lost_lossy"] += double(f.lost_lossy_packets);
    out["datagrams.repeated_bytes"] += double(f.repeated_bytes);
    out["datagrams.doubles"] += double(f.doubles);
    out["datagrams.malformed"] += double(f.malformed + f.crowded);
  }
  out["datagrams.strangers"] = double(strangers_);
  return out;
}

void DatagramTransport::close() {
  if (is_closed_) return;
  for (auto& [peer, session] : sessions_) {
    if (!session->flow || inner_->is_lost(peer)) continue;
    for (Message& message : session->flow->take_unacknowledged()) inner_->send(peer, kBulk, std::move(message));
  }
  is_closed_ = true;
  *is_alive_ = false;
  if (timer_us_ != 0) loop_.cancel(timer_);
  if (!sockets_.empty()) loop_.remove(this);
  for (int fd : sockets_) ::close(fd);
  sockets_.clear();
  inner_->close();
}

}  // namespace geomx
