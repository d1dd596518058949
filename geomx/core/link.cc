// Link: see link.h.
#include "link.h"

#include <algorithm>

namespace geomx {
namespace {

constexpr size_t kBundleBytes = 64 * 1024;  // small frames to one peer leave together up to this
static_assert(kBundleBytes <= kMaxFrames, "no frame is empty, so a bundle never has more of them than a message may");
// Droppable frames on a stream: what is beyond this would wait in the kernel, where nothing overtakes or drops it.
constexpr uint64_t kStreamLossyBytes = 256 * 1024;
// Reliable bytes that droppable ones don't wait for, beside what the path holds.
constexpr uint64_t kStreamReliableBytes = 64 * 1024;
constexpr size_t kMessageHeader = 24;      // of a message with one frame, at most
constexpr uint64_t kAckBytes = 64 * 1024;  // received without an acknowledgement at most,
constexpr uint64_t kAckDelayUs = 5000;     // and for this long

Account account_of(const Frame& frame) {
  if (frame.has(kInit)) return Account::init;
  switch (frame.kind) {
    case FrameKind::push:
    case FrameKind::end:
      return Account::up;
    case FrameKind::value:
    case FrameKind::overlap:
      return Account::down;
    case FrameKind::pull:
      return Account::up;
    default:
      return Account::control;
  }
}

}  // namespace

Link::Link(Reactor& reactor, Transport& transport, Tier tier, Counters& counters)
    : reactor_(reactor), transport_(transport), tier_(tier), counters_(counters) {
  transport_.receive([this](PeerId from, uint8_t channel, Message message) { take(from, channel, std::move(message)); },
                     [this](const std::string& why) { refuse(why); },
                     [this](PeerId peer, const std::string& why) {
                       if (trouble_) trouble_(node_at(peer), peer, why, transport_.is_lost(peer));
                     });
  transport_.on_room([this](PeerId id) {
    auto found = node_of_.find(id);
    if (found != node_of_.end()) mark(found->second, peers_[found->second]);
  });
  reactor_.at_turn_end([this] { pump(); });
}

// ---- what is given -------------------------------------------------------------------------------------------------

void Link::set_peer(NodeId node, PeerId peer) {
  node_of_[peer] = node.packed();
  Peer& entry = peers_[node.packed()];
  entry.id = peer;
  entry.is_connected = true;
  mark(node.packed(), entry);
}

Link::Peer* Link::peer_of(NodeId to) {
  auto found = peers_.find(to.packed());
  if (found == peers_.end() && unknown_) {
    unknown_(to);
    found = peers_.find(to.packed());
  }
  return found == peers_.end() ? nullptr : &found->second;
}

void Link::send(NodeId to, Frame frame) {
  if (to.packed() == self_) {  // a server that is its own member
    reactor_.post([this, to, f = std::move(frame)]() mutable { handler_(to, 0, std::move(f)); });
    return;
  }
  Peer* const peer = peer_of(to);
  if (peer == nullptr)
    return refuse("nothing is known of the node that a " + std::string(name_of(frame.kind)) + " is for");
  peer->queue.push_urgent(std::move(frame));
  mark(to.packed(), *peer);
}

void Link::send_to_peer(PeerId peer, Frame frame) {
  std::vector<Frame> frames;
  frames.push_back(std::move(frame));
  Peer stranger;
  stranger.id = peer;
  transmit(stranger, 0, std::move(frames), false);
  strangers_.add(stranger.flows);
}

void Link::send_ranked(NodeId to, Frame frame, int64_t rank, uint8_t channel, uint64_t wait_us) {
  if (to.packed() == self_) return send(to, std::move(frame));
  Peer* const peer = peer_of(to);
  if (peer == nullptr) return refuse("nothing is known of the node that a part is for");
  const int64_t since_ns = is_traced(frame) ? Trace::now_ns() : 0;
  peer->queue.push_ranked(channel, std::move(frame), rank, wait_us, since_ns);
  mark(to.packed(), *peer);
}

void Link::send_trailing(NodeId to, Frame frame) {
  if (to.packed() == self_) return send(to, std::move(frame));
  auto found = peers_.find(to.packed());
  if (found == peers_.end()) return refuse("nothing is known of the node that the end of a round is for");
  found->second.queue.push_trailing(std::move(frame));
  mark(to.packed(), found->second);
}

Bytes Link::allocate(NodeId to, size_t size) {
  auto found = peers_.find(to.packed());
  const bool is_connected = found != peers_.end() && found->second.is_connected;
  return is_connected ? transport_.allocate(found->second.id, size) : Bytes::allocate(size);
}

bool Link::is_idle() const {
  for (const auto& [node, peer] : peers_)
    if (!peer.queue.is_empty() || !peer.unacked.empty()) return false;
  return true;
}

uint64_t Link::in_flight_bytes(NodeId to) const {
  auto found = peers_.find(to.packed());
  return found == peers_.end() ? 0 : found->second.in_flight_bytes;
}

// ---- what leaves ---------------------------------------------------------------------------------------------------

void Link::mark(uint32_t node, Peer& peer) {
  if (peer.is_dirty) return;
  peer.is_dirty = true;
  dirty_.push_back(node);
}

void Link::pump() {
  std::vector<uint32_t> nodes;
  nodes.swap(dirty_);
  for (uint32_t node : nodes) {
    Peer& peer = peers_[node];
    peer.is_dirty = false;
    if (!peer.is_connected) continue;
    pump_peer(peer);
    if (peer.queue.has_lossy()) watch_expiry(node, peer);
  }
}

// Control and acknowledgements, then the best frames that credit and transport allow: reliable ones, droppable ones,
// and last the ends of what was droppable. Where there are datagrams, control goes apart from them.
void Link::pump_peer(Peer& peer) {
  std::vector<Frame> control = pump_control(peer);
  if (transport_.max_datagram(peer.id) != 0 && !control.empty()) {
    transmit(peer, 0, std::move(control), false);
    control.clear();
  }
  if (peer.queue.has_lossy()) drop_late(peer);
  pump_ranked(peer, std::move(control));
  if (!peer.queue.has_ranked() && !is_behind_reliable(peer)) {
    peer.queue.start_waits(reactor_.now_us());
    pump_lossy(peer);
  }
  pump_trailing(peer);
}

// What is left for one more message. A message has a limit, and a model of many parts is pulled with a frame for each.
std::vector<Frame> Link::pump_control(Peer& peer) {
  std::vector<Frame> control;
  if (!peer.to_ack.empty() && (peer.is_ack_due || peer.queue.has_urgent() || peer.queue.has_ranked()))
    control.push_back(take_due_acks(peer));
  size_t bytes = 0;
  for (Frame& frame : peer.queue.take_urgent()) {
    const size_t size = frame_overhead(frame) + frame.body.size();
    if (!control.empty() && bytes + size > kBundleBytes) {
      transmit(peer, 0, std::move(control), false);
      control.clear();
      bytes = 0;
    }
    bytes += size;
    control.push_back(std::move(frame));
  }
  return control;
}

// Where a transport takes all that is reliable at once, what it has taken is still before what is droppable.
bool Link::is_behind_reliable(const Peer& peer) const {
  const uint64_t pipe_bytes = peer.credit.bytes({kStreamReliableBytes, true});
  return transport_.room(peer.id, kBulk) == SIZE_MAX && peer.in_flight_bytes > pipe_bytes;
}

// Small frames together; control that was given rides along in front.
void Link::pump_ranked(Peer& peer, std::vector<Frame> bundle) {
  bool carries_parts = false;
  size_t bytes = 0;
  while (peer.queue.has_ranked()) {
    const size_t room = transport_.room(peer.id, kBulk);
    const size_t size = peer.queue.ranked().front().frame.body.size() + 16;
    const uint64_t in_flight = peer.in_flight_bytes + bytes;
    if (room <= bytes) break;
    if (in_flight != 0 && in_flight + size > peer.credit.bytes(credit_rule_)) {
      peer.credit.on_blocked();
      break;
    }
    if (carries_parts && (bytes + size > std::min(kBundleBytes, room) || bundle.size() + 1 >= kMaxFrames)) {
      transmit(peer, kBulk, std::move(bundle), true);
      bundle.clear();
      bytes = 0;
      carries_parts = false;
      continue;
    }
    bundle.push_back(pop(peer, 0));
    bytes += size;
    carries_parts = true;
  }
  if (!bundle.empty()) transmit(peer, carries_parts ? kBulk : 0, std::move(bundle), carries_parts);
}

// Without lossy channels they take the reliable way, a little at a time.
void Link::pump_lossy(Peer& peer) {
  const size_t max_bytes = transport_.max_datagram(peer.id);
  for (const auto& [channel, frames] : peer.queue.lossy()) {
    while (!frames.empty()) {
      if (transport_.room(peer.id, channel) == 0) break;
      if (max_bytes != 0) {
        pump_datagram(peer, channel, frames, max_bytes);
        continue;
      }
      const uint64_t size = frames.front().frame.body.size() + 16;
      if (peer.in_flight_bytes != 0 && peer.in_flight_bytes + size > kStreamLossyBytes) return;
      std::vector<Frame> one;
      one.push_back(pop(peer, channel));
      transmit(peer, kBulk, std::move(one), true);
    }
  }
}

// As many parts of about the same rank as one datagram holds: they are lost together.
void Link::pump_datagram(Peer& peer, uint8_t channel, const SendQueue::Heap& frames, size_t max_bytes) {
  std::vector<Frame> bundle;
  size_t bytes = kMessageHeader;
  while (!frames.empty()) {
    const Frame& next = frames.front().frame;
    const size_t size = frame_overhead(next) + next.body.size();
    if (!bundle.empty() && bytes + size > max_bytes) break;
    bytes += size;
    bundle.push_back(pop(peer, channel));
  }
  transmit(peer, channel, std::move(bundle), false);
}

void Link::pump_trailing(Peer& peer) {
  for (Frame frame; peer.queue.pop_trailing(&frame);) {
    std::vector<Frame> one;
    one.push_back(std::move(frame));
    transmit(peer, kBulk, std::move(one), true);
  }
}

void Link::drop_late(Peer& peer) {
  peer.queue.drop_late(reactor_.now_us(), [this](const Frame& frame) {
    ++counters_.of(tier_).dropped_parts;
    ++counters_.of(tier_).of_key(frame.key).dropped_parts;
  });
}

// What waits is looked at again when the first of it is late.
void Link::watch_expiry(uint32_t node, Peer& peer) {
  const uint64_t first_us = peer.queue.first_deadline_us();
  if (first_us == 0 || (peer.expiry_us != 0 && peer.expiry_us <= first_us)) return;
  peer.expiry_us = first_us;
  reactor_.at(first_us, [this, node] {
    Peer& late = peers_[node];
    late.expiry_us = 0;
    mark(node, late);
  });
}

Frame Link::pop(Peer& peer, uint8_t channel) {
  SendQueue::Queued first = peer.queue.pop(channel);
  if (first.since_ns != 0) {
    TraceEvent event = event_of(TraceKind::queue, first.frame, node_of_[peer.id]);
    event.begin_ns = first.since_ns;
    event.end_ns = Trace::now_ns();
    trace_->add(event);
  }
  return std::move(first.frame);
}

bool Link::is_traced(const Frame& frame) const {
  const bool is_part = frame.kind == FrameKind::push || frame.kind == FrameKind::value;
  return trace_ != nullptr && is_part && trace_->covers(frame.round);
}

TraceEvent Link::event_of(TraceKind kind, const Frame& frame, uint32_t node) const {
  const Direction direction = frame.kind == FrameKind::push ? Direction::up : Direction::down;
  return {kind, tier_, direction, node, frame.key, frame.part, frame.round, 0, 0};
}

// Each frame's own bytes go to its account; the message's header and framing to that of its first tensor frame.
void Link::transmit(Peer& peer, uint8_t channel, std::vector<Frame> frames, bool acknowledged) {
  Header header{self_, acknowledged ? next_message_++ : 0};
  Account header_account = Account::control;
  uint64_t counted = 0;
  for (const Frame& frame : frames) {
    if (header_account == Account::control) header_account = account_of(frame);
    counted += count_frame(peer, frame);
  }
  // Where rates are measured, an acknowledgement that waits would count as time on the way.
  header.is_ack_awaited = acknowledged && (delivered_ || peer.queue.has_ranked() || peer.queue.has_lossy() ||
                                           peer.in_flight_bytes + counted > peer.credit.bytes(credit_rule_) / 2);
  Message message = pack(header, std::move(frames));
  if (acknowledged) {
    if (peer.in_flight_bytes == 0) peer.credit.on_start(reactor_.now_us());
    peer.unacked[header.id] = {message.size(), reactor_.now_us()};
    peer.in_flight_bytes += message.size();
  }
  ++counters_.of(tier_).messages;
  count(peer, {kNoKey, header_account, 0, 0, 0,
               message.size() + transport_.overhead_to(peer.id, channel, message) - counted});
  transport_.send(peer.id, channel, std::move(message));
}

// How many bytes they are.
uint64_t Link::count_frame(Peer& peer, const Frame& frame) {
  const Account account = account_of(frame);
  const uint32_t key = account == Account::control ? kNoKey : frame.key;
  count(peer, {key, account, frame.codec, 1, frame.body.size(), frame_overhead(frame)});
  TierCounters& c = counters_.of(tier_);
  if (account == Account::up) {
    c.up_payload_bytes += frame.body.size();
    if (frame.kind == FrameKind::push) c.up_payload_by_codec[frame.codec] += frame.body.size();
  } else if (account == Account::down) {
    c.down_payload_bytes += frame.body.size();
    c.down_payload_by_codec[frame.codec] += frame.body.size();
  }
  return frame.body.size() + frame_overhead(frame);
}

void Link::count(Peer& peer, const Flow& flow) {
  TierCounters& c = counters_.of(tier_);
  uint64_t* const totals[] = {&c.up_bytes, &c.down_bytes, &c.init_bytes, &c.control_bytes};
  *totals[size_t(flow.account)] += flow.payload_bytes + flow.framing_bytes;
  peer.flows.add(flow);
}

// ---- what arrives --------------------------------------------------------------------------------------------------

void Link::take(PeerId from, uint8_t, Message message) {
  Header header;
  std::vector<Frame> frames;
  if (Status status = parse(message, &header, &frames); !status.ok()) return refuse(status.message());
  const size_t bytes = message.size();
  message = Message();  // from here on a frame is the only holder of its body, so sums may be made in it
  auto known = node_of_.find(from);
  if (known == node_of_.end()) {
    if (header.from != kNobody) {
      set_peer(NodeId{Role(header.from & 3), header.from >> 2}, from);
      known = node_of_.find(from);
    }
  } else if (header.from != kNobody && header.from != known->second) {
    return refuse("a message says that it is from another node than its connection's");
  }
  const uint32_t node = known == node_of_.end() ? kNobody : known->second;
  const NodeId sender = node_at(from);
  if (received_ && header.id != 0 && node != kNobody) received_(sender, bytes);
  if (header.id != 0 && node != kNobody && acknowledges_) acknowledge(node, header, bytes);
  for (Frame& frame : frames) {
    if (frame.kind == FrameKind::ack) {
      if (node != kNobody) take_acks(peers_[node], frame);
    } else {
      if (is_traced(frame)) {
        TraceEvent event = event_of(TraceKind::receive, frame, node);
        event.begin_ns = event.end_ns = Trace::now_ns();
        trace_->add(event);
      }
      handler_(sender, from, std::move(frame));
    }
  }
}

// A message of its own for each acknowledgement would double the messages of a round of small tensors.
void Link::acknowledge(uint32_t node, const Header& header, size_t bytes) {
  Peer& peer = peers_[node];
  peer.to_ack.push_back(header.id);
  peer.to_ack_bytes += bytes;
  if (header.is_ack_awaited || peer.to_ack_bytes > kAckBytes) {
    peer.is_ack_due = true;
    return mark(node, peer);
  }
  if (is_ack_timer_set_) return;
  is_ack_timer_set_ = true;
  reactor_.after(kAckDelayUs, [this] { hasten_acks(); });
}

Frame Link::take_due_acks(Peer& peer) {
  Writer ids;
  for (uint64_t id : peer.to_ack) ids.varint(id);
  peer.to_ack.clear();
  peer.to_ack_bytes = 0;
  peer.is_ack_due = false;
  Frame frame(FrameKind::ack);
  frame.body = ids.finish();
  return frame;
}

void Link::hasten_acks() {
  is_ack_timer_set_ = false;
  for (auto& [node, peer] : peers_) {
    if (peer.to_ack.empty()) continue;
    peer.is_ack_due = true;
    mark(node, peer);
  }
}

void Link::take_acks(Peer& peer, const Frame& frame) {
  Reader in(frame.body);
  while (in.left() > 0 && in.ok()) {
    auto found = peer.unacked.find(in.varint());
    if (found == peer.unacked.end()) continue;  // acknowledged before: a double
    const Peer::Sent sent = found->second;
    peer.in_flight_bytes -= sent.bytes;
    peer.unacked.erase(found);
    peer.credit.on_delivered(sent.bytes, sent.at_us, reactor_.now_us());
    if (delivered_) delivered_(node_at(peer.id), sent.bytes, sent.at_us);
  }
  if (peer.queue.has_ranked() || peer.queue.has_lossy()) mark(node_of_[peer.id], peer);
}

NodeId Link::node_at(PeerId peer) const {
  auto found = node_of_.find(peer);
  const uint32_t node = found == node_of_.end() ? kNobody : found->second;
  return {Role(node & 3), node >> 2};
}

void Link::refuse(const std::string& why) {
  ++counters_.of(tier_).refused_frames;
  if (refused_) refused_(why);
}

}  // namespace geomx
