// See side_streams.h. A connection begins with the key (8 bytes) and the channel (1); messages follow as in
// local_pipe.h.
#include "side_streams.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "address.h"
#include "wire.h"

namespace geomx {
namespace {

constexpr std::string_view kOfferMagic = "GS1";
constexpr size_t kHelloBytes = 9;
constexpr size_t kMessageBytes = 16 * 1024;  // small parts travel together up to this
constexpr int kUnsentBytes = 16 * 1024;      // that a kernel holds back at most, beyond what the path takes
constexpr size_t kReadBytes = 256 * 1024;    // at once, so that no stream starves the others
constexpr size_t kMaxStrangers = 64;
constexpr int kBacklog = 128;
constexpr uint8_t kMaxChannels = 8;
constexpr uint64_t kAgainUs = 5'000'000;

bool is_lossy(uint8_t channel) { return channel != 0 && channel != kBulk; }

}  // namespace

Bytes pack(const StreamOffer& offer) {
  return Writer()
      .raw(kOfferMagic.data(), kOfferMagic.size())
      .varint(offer.count)
      .varint(offer.port)
      .u64(offer.key)
      .finish();
}

bool is_stream_offer(const Bytes& head) { return head.text().substr(0, 2) == kOfferMagic.substr(0, 2); }

std::optional<StreamOffer> parse_stream_offer(const Bytes& head) {
  if (head.text().substr(0, kOfferMagic.size()) != kOfferMagic) return std::nullopt;
  Reader in(head.text().substr(kOfferMagic.size()));
  const uint64_t count = in.varint(), port = in.varint(), key = in.u64();
  if (!in.done() || count == 0 || count > kMaxChannels || port > 65535) return std::nullopt;
  return StreamOffer{uint8_t(count), uint16_t(port), key};
}

SideStreams::SideStreams(Loop& loop, std::unique_ptr<Transport> main) : TransportOver(std::move(main)), loop_(loop) {}

SideStreams::~SideStreams() { close(); }

Status SideStreams::connect(const std::string& address, PeerId* peer) {
  const Status status = inner_->connect(address, peer);
  if (!status.ok()) return status;
  std::unique_ptr<Session>& session = sessions_[*peer];
  if (!session) session = std::make_unique<Session>();
  HostPort parsed;
  if (parse_address(address, &parsed).ok()) (void)resolve(parsed.host, false, &session->host);
  if (num_channels_ != 0) offer_to(*peer, *session);
  return status;
}

void SideStreams::take_in(PeerId from, uint8_t channel, Message message) {
  if (is_stream_offer(message.head)) return take_offer(from, message);
  TransportOver::take_in(from, channel, std::move(message));
}

// ---- meeting -------------------------------------------------------------------------------------------------------

Status SideStreams::open_channels(const LossyChannels& channels) {
  if (num_channels_ != 0 || channels.count == 0) return {};
  if (Status status = listen(); !status.ok()) return status;
  num_channels_ = std::min(channels.count, kMaxChannels);
  loop_.add(this);
  for (auto& [peer, session] : sessions_) offer_to(peer, *session);
  return {};
}

Status SideStreams::listen() {
  int family = 0;
  listener_ = open_socket(SOCK_STREAM, &family);
  if (listener_ >= 0) port_ = bind_any_port(listener_, family);
  if (port_ == 0 || ::listen(listener_, kBacklog) != 0)
    return Status::error(std::string("no port for more streams: ") + std::strerror(errno));
  return {};
}

void SideStreams::offer_to(PeerId peer, Session& session) {
  if (session.has_offered || inner_->is_lost(peer) || (session.host.empty() && !session.has_theirs)) return;
  session.has_offered = true;
  session.own_key = random_key();
  by_key_[session.own_key] = peer;
  const uint16_t port = session.host.empty() ? port_ : uint16_t(0);
  inner_->send(peer, 0, Message{pack(StreamOffer{num_channels_, port, session.own_key}), {}});
}

void SideStreams::take_offer(PeerId peer, const Message& message) {
  const std::optional<StreamOffer> offer = parse_stream_offer(message.head);
  std::unique_ptr<Session>& session = sessions_[peer];
  if (!session) session = std::make_unique<Session>();
  if (!offer || !message.attachments.empty() || (offer->port == 0) != session->host.empty()) {
    return refuse("a malformed offer of streams");
  }
  if (session->has_theirs) return;
  session->has_theirs = true;
  session->theirs = *offer;
  if (num_channels_ == 0) return;  // answered when we open ours, if ever
  offer_to(peer, *session);
  if (!session->host.empty()) open_streams(peer, *session);
}

// ---- connecting ----------------------------------------------------------------------------------------------------

void SideStreams::open_streams(PeerId peer, Session& session) {
  if (is_closed_ || inner_->is_lost(peer)) return;
  const uint8_t count = std::min(num_channels_, session.theirs.count);
  session.streams.clear();
  session.streams.resize(count);
  for (uint8_t channel = 1; channel <= count; ++channel) {
    session.streams[channel - 1].connecting = open_stream(session, channel);
    if (session.streams[channel - 1].connecting < 0) return break_off(peer, session, std::strerror(errno));
  }
}

int SideStreams::open_stream(const Session& session, uint8_t channel) {
  const Endpoint to = Endpoint::of(session.host, session.theirs.port, AF_UNSPEC);
  errno = EADDRNOTAVAIL;
  if (!to.is_known()) return -1;
  const int fd = socket(to.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  prepare(fd, channel);
  if (::connect(fd, to.get(), to.size) == 0 || errno == EINPROGRESS) return fd;
  ::close(fd);
  return -1;
}

void SideStreams::prepare(int fd, uint8_t channel) const {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytes);
  mark_priority(fd, channel, num_channels_);
}

void SideStreams::finish_connecting(PeerId peer, Session& session, uint8_t channel) {
  Stream& stream = session.streams[channel - 1];
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(stream.connecting, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0)
    return break_off(peer, session, std::strerror(error));
  uint8_t hello[kHelloBytes];
  std::memcpy(hello, &session.theirs.key, 8);
  hello[8] = channel;
  if (::send(stream.connecting, hello, kHelloBytes, MSG_NOSIGNAL) != ssize_t(kHelloBytes))
    return break_off(peer, session, std::strerror(errno));
  stream.pipe = std::make_unique<LocalPipe>(stream.connecting);
  stream.connecting = -1;
  check_up(peer, session);
}

void SideStreams::check_up(PeerId peer, Session& session) {
  session.is_up = std::all_of(session.streams.begin(), session.streams.end(),
                              [](const Stream& stream) { return stream.pipe != nullptr; });
  if (session.is_up) tell_room(peer);
}

void SideStreams::accept_strangers() {
  for (int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); fd >= 0;
       fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC))
    strangers_.push_back({fd});
  for (; strangers_.size() > kMaxStrangers; strangers_.pop_front()) {
    ::close(strangers_.front().fd);
    ++num_strangers_;
  }
}

// Does it show a key and a channel of ours? False: it may still do so.
bool SideStreams::is_settled(Stranger& stranger) {
  uint8_t bytes[kHelloBytes];
  const ssize_t got = recv(stranger.fd, bytes, kHelloBytes - stranger.shown.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got > 0) stranger.shown.insert(stranger.shown.end(), bytes, bytes + got);
  if (got > 0 && stranger.shown.size() < kHelloBytes) return false;
  uint64_t key = 0;
  if (got > 0) std::memcpy(&key, stranger.shown.data(), sizeof(key));
  const auto known = by_key_.find(key);
  const uint8_t channel = got > 0 ? stranger.shown.back() : uint8_t(0);
  Session* const session = known == by_key_.end() ? nullptr : sessions_[known->second].get();
  if (session == nullptr || !session->host.empty() || channel == 0 ||
      channel > std::min(num_channels_, session->theirs.count)) {
    ::close(stranger.fd);
    ++num_strangers_;
    refuse("a connection that shows no key of ours");
    return true;
  }
  prepare(stranger.fd, channel);
  session->streams.resize(std::min(num_channels_, session->theirs.count));
  session->streams[channel - 1].pipe = std::make_unique<LocalPipe>(stranger.fd);
  session->streams[channel - 1].place = SIZE_MAX;
  check_up(known->second, *session);
  return true;
}

// What was on its way is lost, as it may be. Who opened the connections tries again.
void SideStreams::break_off(PeerId peer, Session& session, const std::string& why) {
  close_streams(session);
  if (!session.is_warned && !inner_->is_lost(peer)) {
    session.is_warned = true;
    refuse("the streams of lossy channels" +
           (session.host.empty()
                ? std::string()
                : " to " + session.host + " (TCP port " + std::to_string(session.theirs.port) + "; is it blocked?)") +
           " are not there (" + why + "), so everything takes the reliable way");
  }
  tell_room(peer);
  if (session.host.empty() || session.is_retrying) return;
  session.is_retrying = true;
  loop_.after(kAgainUs, [this, peer, is_alive = is_alive_] {
    if (!*is_alive) return;
    Session& again = *sessions_[peer];
    again.is_retrying = false;
    open_streams(peer, again);
  });
}

void SideStreams::close_streams(Session& session) {
  session.is_up = false;
  for (Stream& stream : session.streams)
    if (stream.connecting >= 0) ::close(stream.connecting);
  session.streams.clear();
}

void SideStreams::lose(PeerId peer, const std::string& why) {
  const auto found = sessions_.find(peer);
  if (found != sessions_.end() && inner_->is_lost(peer)) {
    by_key_.erase(found->second->own_key);
    close_streams(*found->second);
  }
  TransportOver::lose(peer, why);
}

// ---- sending -------------------------------------------------------------------------------------------------------

SideStreams::Session* SideStreams::up(PeerId peer) const {
  const auto found = sessions_.find(peer);
  return found != sessions_.end() && found->second->is_up ? found->second.get() : nullptr;
}

void SideStreams::send(PeerId peer, uint8_t channel, Message message) {
  Session* const session = is_lossy(channel) ? up(peer) : nullptr;
  // A channel that has just gone: late is better than lost.
  if (session == nullptr) return inner_->send(peer, is_lossy(channel) ? kBulk : channel, std::move(message));
  LocalPipe::Frames frames;
  frames.push_back(std::move(message.head));
  for (Bytes& attachment : message.attachments) frames.push_back(std::move(attachment));
  ++num_messages_;
  for (const Bytes& frame : frames) num_bytes_ += frame.size();
  const size_t place = std::min<size_t>(channel, session->streams.size()) - 1;
  if (!session->streams[place].pipe->send(frames)) break_off(peer, *session, std::strerror(errno));
}

size_t SideStreams::max_datagram(PeerId peer) const { return up(peer) == nullptr ? 0 : kMessageBytes; }

size_t SideStreams::room(PeerId peer, uint8_t channel) const {
  const Session* const session = is_lossy(channel) ? up(peer) : nullptr;
  if (session == nullptr) return inner_->room(peer, channel);
  const size_t place = std::min<size_t>(channel, session->streams.size()) - 1;
  return session->streams[place].pipe->has_unsent() ? 0 : kMessageBytes;
}

size_t SideStreams::overhead_to(PeerId peer, uint8_t channel, const Message& message) const {
  if (!is_lossy(channel) || up(peer) == nullptr) return inner_->overhead_to(peer, channel, message);
  return 4 + 8 * (1 + message.attachments.size());
}

// ---- reading -------------------------------------------------------------------------------------------------------

bool SideStreams::append_descriptors(std::vector<pollfd>* descriptors) {
  const auto add = [descriptors](int fd, short events, size_t* place) {
    *place = descriptors->size();
    descriptors->push_back({fd, events, 0});
  };
  add(listener_, POLLIN, &listener_place_);
  for (Stranger& stranger : strangers_) add(stranger.fd, POLLIN, &stranger.place);
  for (auto& [peer, session] : sessions_)
    for (Stream& stream : session->streams) {
      stream.place = SIZE_MAX;
      if (stream.connecting >= 0) add(stream.connecting, POLLOUT, &stream.place);
      if (stream.pipe) add(stream.pipe->fd(), short(POLLIN | (stream.pipe->has_unsent() ? POLLOUT : 0)), &stream.place);
    }
  return false;
}

void SideStreams::read(const std::vector<pollfd>& descriptors) {
  const auto fired = [&descriptors](size_t place) {
    return place < descriptors.size() ? descriptors[place].revents : 0;
  };
  if (fired(listener_place_) != 0) accept_strangers();
  for (size_t left = strangers_.size(); left > 0; --left) {
    Stranger stranger = std::move(strangers_.front());
    strangers_.pop_front();
    if (fired(stranger.place) == 0 || !is_settled(stranger)) strangers_.push_back(std::move(stranger));
  }
  std::vector<std::pair<PeerId, uint8_t>> ready;
  for (auto& [peer, session] : sessions_)
    for (size_t i = 0; i < session->streams.size(); ++i)
      if (fired(session->streams[i].place) != 0) ready.emplace_back(peer, uint8_t(i + 1));
  for (const auto& [peer, channel] : ready) {
    if (is_closed_) return;
    Session& session = *sessions_[peer];
    if (channel > session.streams.size()) continue;  // it broke off meanwhile
    if (session.streams[channel - 1].connecting >= 0)
      finish_connecting(peer, session, channel);
    else if (session.streams[channel - 1].pipe)
      read_stream(peer, session, channel);
  }
}

void SideStreams::read_stream(PeerId peer, Session& session, uint8_t channel) {
  LocalPipe& pipe = *session.streams[channel - 1].pipe;
  std::vector<Message> messages;
  const LocalPipe::Found found = pipe.receive(kReadBytes, [&messages](LocalPipe::Frames frames) {
    Message message;
    message.head = std::move(frames.front());
    message.attachments.assign(std::make_move_iterator(frames.begin() + 1), std::make_move_iterator(frames.end()));
    messages.push_back(std::move(message));
  });
  const bool was_full = pipe.has_unsent();
  if (found == LocalPipe::Found::end || found == LocalPipe::Found::garbage || !pipe.flush())
    break_off(peer, session, found == LocalPipe::Found::garbage ? "what came makes no sense" : "the other end closed");
  else if (was_full && !pipe.has_unsent())
    tell_room(peer);
  for (Message& message : messages) {
    if (is_closed_ || !receiver_) return;
    receiver_(peer, channel, std::move(message));
  }
}

void SideStreams::garble_for_tests(PeerId peer) {
  const uint8_t none[4] = {0, 0, 0, 0};
  (void)::send(sessions_[peer]->streams[0].pipe->fd(), none, sizeof(none), MSG_NOSIGNAL);
}

std::map<std::string, double> SideStreams::figures() const {
  std::map<std::string, double> out = inner_->figures();
  if (num_channels_ == 0) return out;
  out["streams.messages"] = double(num_messages_);
  out["streams.bytes"] = double(num_bytes_);
  out["streams.strangers"] = double(num_strangers_);
  return out;
}

void SideStreams::close() {
  if (is_closed_) return;
  is_closed_ = true;
  *is_alive_ = false;
  if (num_channels_ != 0) loop_.remove(this);
  for (auto& [peer, session] : sessions_) close_streams(*session);
  for (const Stranger& stranger : strangers_) ::close(stranger.fd);
  if (listener_ >= 0) ::close(listener_);
  inner_->close();
}

}  // namespace geomx
