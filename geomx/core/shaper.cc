// See shaper.h.
#include "shaper.h"

#include <algorithm>
#include <cstring>

namespace geomx {
namespace {

constexpr double kSegment = 1448, kSegmentHeaders = 52;     // of 1,500 bytes: IP 20, TCP 20 and its timestamps 12
constexpr double kAcknowledgement = 52, kSegmentsEach = 2;  // one for two segments, the other way
constexpr double kRoomUs = 10'000;                          // of the link's time, that may wait for it
constexpr uint32_t kMark = 0x50'4d'54'53;                   // "STMP"

}  // namespace

// Behind each message, 32 bytes.
struct Shaper::Stamp {
  uint32_t mark, party;
  uint64_t first_us, last_us;  // when its first and last byte leave the sender's access link
  double bytes;
};

Shaper::Shaper(Reactor& reactor, std::unique_ptr<Transport> inner, WanShape shape, std::shared_ptr<WanLinks> links)
    : TransportOver(std::move(inner)),
      reactor_(reactor),
      shape_(std::move(shape)),
      links_(std::move(links)),
      random_(shape_.seed) {}

Shaper::~Shaper() { close(); }

double Shaper::stream_bytes(size_t size) {
  return double(size) + kSegmentHeaders * double((size + size_t(kSegment) - 1) / size_t(kSegment));
}

Status Shaper::open_channels(const LossyChannels& channels) {
  are_streams_ = channels.are_streams;
  return inner_->open_channels(channels);
}

size_t Shaper::max_datagram(PeerId peer) const {
  const size_t inner = inner_->max_datagram(peer);
  return inner <= sizeof(Stamp) ? 0 : inner - sizeof(Stamp);
}

uint64_t Shaper::since_us() const {
  const uint64_t now_us = reactor_.now_us(), origin_us = links_->origin_us();
  return now_us > origin_us ? now_us - origin_us : 0;
}

// ---- sending -------------------------------------------------------------------------------------------------------

void Shaper::send(PeerId to, uint8_t channel, Message message) {
  const uint64_t now_us = reactor_.now_us();
  const size_t size = message.size() + inner_->overhead(message);
  Stamp stamp{kMark, shape_.party, now_us, now_us, is_stream(channel) ? stream_bytes(size) : datagram_bytes(size)};
  const uint32_t own = shape_.party;
  // Until the first word from there, its party isn't known; it may be ours, and then these few bytes are charged in
  // vain.
  if (peers_[to].party != own) {
    const double bytes_per_s = rate(LinkSide::up);
    if (!is_stream(channel) && bytes_per_s > 0 && backlog_bytes(bytes_per_s) + stamp.bytes > shape_.queue_bytes[own])
      return;
    const WanLinks::Taken taken = links_->take(own, LinkSide::up, now_us, stamp.bytes, bytes_per_s);
    stamp.first_us = taken.begin_us;
    stamp.last_us = taken.end_us;
  }
  message.attachments.push_back(Bytes::copy(&stamp, sizeof(stamp)));
  inner_->send(to, channel, std::move(message));
}

double Shaper::backlog_bytes(double bytes_per_s) const {
  const uint64_t now_us = reactor_.now_us(), busy_us = links_->busy_until_us(shape_.party, LinkSide::up);
  return busy_us <= now_us ? 0 : double(busy_us - now_us) * 1e-6 * bytes_per_s;
}

size_t Shaper::room(PeerId peer, uint8_t channel) const {
  const size_t inner = inner_->room(peer, channel);
  const double bytes_per_s = rate(LinkSide::up);
  const auto found = peers_.find(peer);
  const bool is_inside = found != peers_.end() && found->second.party == shape_.party;
  if (inner == 0 || bytes_per_s <= 0 || is_inside || max_datagram(peer) == 0) return inner;
  const double limit = std::min(shape_.queue_bytes[shape_.party], kRoomUs * 1e-6 * bytes_per_s);
  const double backlog = backlog_bytes(bytes_per_s);
  if (backlog < limit) return std::min(inner, size_t(limit - backlog) + 1);
  wake_when_there_is_room(peer, bytes_per_s, limit);
  return 0;
}

// When half of it is there again. Other nodes of the party may have taken it by then; who is told asks, and is told
// again.
void Shaper::wake_when_there_is_room(PeerId peer, double bytes_per_s, double limit) const {
  if (!on_room_ || !without_room_.insert(peer).second) return;
  const double too_many = backlog_bytes(bytes_per_s) - limit / 2;
  later(reactor_.now_us() + uint64_t(too_many / bytes_per_s * 1e6) + 1, [this, peer] {
    without_room_.erase(peer);
    on_room_(peer);
  });
}

// ---- receiving -----------------------------------------------------------------------------------------------------

void Shaper::take_in(PeerId from, uint8_t channel, Message message) {
  Stamp stamp;
  const bool is_stamped = !message.attachments.empty() && message.attachments.back().size() == sizeof(stamp);
  if (is_stamped) std::memcpy(&stamp, message.attachments.back().data(), sizeof(stamp));
  if (!is_stamped || stamp.mark != kMark || stamp.party >= shape_.num_parties() || !(stamp.bytes >= 0)) {
    if (on_refused_) on_refused_("a message without the stamp of a shaped WAN: its sender has another network=");
    return;
  }
  message.attachments.pop_back();
  peers_[from].party = stamp.party;
  on_stamped(from, channel, stamp, std::move(message));
}

void Shaper::on_stamped(PeerId from, uint8_t channel, const Stamp& stamp, Message message) {
  Peer& peer = peers_[from];
  Held held{std::move(message), channel, stamp.first_us, stamp.last_us, stamp.bytes, ""};
  if (stamp.party == shape_.party && peer.streams.empty()) return hand_over(from, std::move(held));
  if (stamp.party != shape_.party) {
    const WanPath& path = shape_.path(stamp.party, shape_.party);
    const WanTraceRow* now = row();
    if (!is_stream(channel) &&
        losses_[stamp.party].is_lost(now == nullptr ? path.loss : now->loss, path.burst, random_))
      return;
    const uint64_t delay = delay_us(path);
    held.first_us += delay;
    held.last_us += delay;
  }
  if (!is_stream(channel)) {  // by itself: a later one may come earlier
    const uint64_t first_us = held.first_us;
    const auto shared = std::make_shared<Held>(std::move(held));
    return later(first_us, [this, from, shared] {
      const uint64_t due_us = pass_down(*shared);
      if (due_us != 0) later(due_us, [this, from, shared] { hand_over(from, std::move(*shared)); });
    });
  }
  peer.streams.push_back(std::move(held));
  wait_for_first(from);
}

uint64_t Shaper::delay_us(const WanPath& path) {
  const WanTraceRow* now = row();
  const double jitter = path.jitter_us == 0 ? 0 : std::uniform_real_distribution<double>(-1, 1)(random_);
  return uint64_t(std::max(0.0, (now == nullptr ? path.delay_us : now->delay_us) + jitter * path.jitter_us));
}

// When a message is through our access link; 0: a datagram that met a full queue.
uint64_t Shaper::pass_down(const Held& held) {
  const uint32_t own = shape_.party;
  const double bytes_per_s = rate(LinkSide::down);
  if (!is_stream(held.channel) && bytes_per_s > 0) {
    const uint64_t busy_us = links_->busy_until_us(own, LinkSide::down);
    const double waiting = busy_us <= held.first_us ? 0 : double(busy_us - held.first_us) * 1e-6 * bytes_per_s;
    if (waiting + held.bytes > shape_.queue_bytes[own]) return 0;
  }
  return std::max(links_->take(own, LinkSide::down, held.first_us, held.bytes, bytes_per_s).end_us, held.last_us);
}

// Which the kernels' TCP sends while a stream's bytes arrive. They share the links with what goes that way.
void Shaper::charge_acknowledgements(uint32_t from, double bytes) {
  const uint32_t own = shape_.party;
  const double all = bytes / ((kSegment + kSegmentHeaders) * kSegmentsEach) * kAcknowledgement;
  const uint64_t now_us = reactor_.now_us();
  links_->take(own, LinkSide::up, now_us, all, rate(LinkSide::up));
  links_->take(from, LinkSide::down, now_us, all, rate(LinkSide::down, from));
}

// The link is taken when the first byte is there, so that those who come from afar don't hold it before.
void Shaper::wait_for_first(PeerId from) {
  Peer& peer = peers_[from];
  if (peer.is_waiting || peer.streams.empty()) return;
  peer.is_waiting = true;
  later(peer.streams.front().first_us, [this, from] {
    Peer& waited = peers_[from];
    const Held& first = waited.streams.front();
    const bool is_passing = first.lost.empty() && waited.party != shape_.party;
    waited.last_due_us = std::max(waited.last_due_us, is_passing ? pass_down(first) : first.last_us);
    if (is_passing) charge_acknowledgements(waited.party, first.bytes);
    const auto shared = std::make_shared<Held>(std::move(waited.streams.front()));
    waited.streams.pop_front();
    waited.is_waiting = false;
    later(waited.last_due_us, [this, from, shared] { hand_over(from, std::move(*shared)); });
    wait_for_first(from);
  });
}

void Shaper::hand_over(PeerId from, Held held) {
  if (!held.lost.empty()) {
    if (on_lost_) on_lost_(from, held.lost);
  } else if (receiver_) {
    receiver_(from, held.channel, std::move(held.message));
  }
}

// The end comes behind all that was sent before it, whatever holds that up.
void Shaper::lose(PeerId from, const std::string& why) {
  Peer& peer = peers_[from];
  const uint64_t now_us = reactor_.now_us();
  const bool is_over = inner_->is_lost(from) && (!peer.streams.empty() || peer.last_due_us > now_us);
  if (!is_over) {
    if (on_lost_) on_lost_(from, why);
    return;
  }
  const uint64_t last_us = peer.streams.empty() ? now_us : peer.streams.back().first_us;
  peer.streams.push_back(Held{Message(), 0, last_us, last_us, 0, why});
  wait_for_first(from);
}

bool Shaper::is_lost(PeerId peer) const {
  const auto found = peers_.find(peer);
  return inner_->is_lost(peer) && (found == peers_.end() || found->second.streams.empty());
}

// Never at once, even where the time has come: another message's turn that comes first may not have run yet.
void Shaper::later(uint64_t when_us, Task task) const {
  reactor_.at(when_us, [is_alive = is_alive_, t = std::move(task)] {
    if (*is_alive) t();
  });
}

void Shaper::close() {
  if (!*is_alive_) return;
  *is_alive_ = false;
  inner_->close();
}

}  // namespace geomx
