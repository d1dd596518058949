// Link: see link.h.
#include "link.h"

#include <algorithm>

namespace geomx {
namespace {

constexpr size_t kBundleBytes = 64 * 1024;  // small frames to one peer leave together up to this
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
  peer->urgent.push_back(std::move(frame));
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
  Peer* const known = peer_of(to);
  if (known == nullptr) return refuse("nothing is known of the node that a part is for");
  Peer& peer = *known;
  Heap& heap = channel == 0 ? peer.ranked : peer.lossy[channel];
  if (channel != 0) {
    peer.lossy_orders.insert(next_order_);
    peer.has_new_lossy = peer.has_new_lossy || wait_us != 0;
  }
  const int64_t since_ns = is_traced(frame) ? Trace::now_ns() : 0;
  heap.push_back(Queued{rank, next_order_++, std::move(frame), wait_us, 0, since_ns});
  std::push_heap(heap.begin(), heap.end());
  mark(to.packed(), peer);
}

void Link::send_trailing(NodeId to, Frame frame) {
  if (to.packed() == self_) return send(to, std::move(frame));
  auto found = peers_.find(to.packed());
  if (found == peers_.end()) return refuse("nothing is known of the node that the end of a round is for");
  found->second.trailing.push_back(Queued{0, next_order_++, std::move(frame)});
  mark(to.packed(), found->second);
}

Bytes Link::allocate(NodeId to, size_t size) {
  auto found = peers_.find(to.packed());
  const bool is_connected = found != peers_.end() && found->second.is_connected;
  return is_connected ? transport_.allocate(found->second.id, size) : Bytes::allocate(size);
}

bool Link::is_idle() const {
  for (const auto& [node, peer] : peers_)
    if (!peer.urgent.empty() || !peer.ranked.empty() || !peer.lossy_orders.empty() || !peer.trailing.empty() ||
        !peer.unacked.empty())
      return false;
  return true;
}

uint64_t Link::in_flight_bytes(NodeId to) const {
  auto found = peers_.find(to.packed());
  return found == peers_.end() ? 0 : found->second.in_flight_bytes;
}

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
    if (!peer.lossy_orders.empty()) watch_expiry(node, peer);
  }
}

// Control and acknowledgements, then the best frames that credit and transport allow: reliable ones, droppable ones,
// and last the ends of what was droppable. Where there are datagrams, control goes apart from them.
void Link::pump_peer(Peer& peer) {
  std::vector<Frame> control;
  if (!peer.to_ack.empty() && (peer.is_ack_due || !peer.urgent.empty() || !peer.ranked.empty())) {
    Writer ids;
    for (uint64_t id : peer.to_ack) ids.varint(id);
    control.emplace_back(FrameKind::ack).body = ids.finish();
    peer.to_ack.clear();
    peer.to_ack_bytes = 0;
    peer.is_ack_due = false;
  }
  for (Frame& frame : peer.urgent) control.push_back(std::move(frame));
  peer.urgent.clear();
  if (transport_.max_datagram(peer.id) != 0 && !control.empty()) {
    transmit(peer, 0, std::move(control), false);
    control.clear();
  }
  drop_expired(peer);
  pump_ranked(peer, std::move(control));
  if (peer.ranked.empty() && !is_behind_reliable(peer)) {
    start_waits(peer);
    pump_lossy(peer);
  }
  pump_trailing(peer);
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
  while (!peer.ranked.empty()) {
    const size_t room = transport_.room(peer.id, kBulk);
    const size_t size = peer.ranked.front().frame.body.size() + 16;
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
    bundle.push_back(pop(peer.ranked, peer));
    bytes += size;
    carries_parts = true;
  }
  if (!bundle.empty()) transmit(peer, carries_parts ? kBulk : 0, std::move(bundle), carries_parts);
}

// Without lossy channels they take the reliable way, a little at a time.
void Link::pump_lossy(Peer& peer) {
  const size_t max_bytes = transport_.max_datagram(peer.id);
  for (auto& [channel, frames] : peer.lossy) {
    while (!frames.empty()) {
      if (transport_.room(peer.id, channel) == 0) break;
      if (max_bytes != 0) {
        pump_datagram(peer, channel, frames, max_bytes);
        continue;
      }
      const uint64_t size = frames.front().frame.body.size() + 16;
      if (peer.in_flight_bytes != 0 && peer.in_flight_bytes + size > kStreamLossyBytes) return;
      std::vector<Frame> one;
      one.push_back(pop_lossy(peer, frames));
      transmit(peer, kBulk, std::move(one), true);
    }
  }
}

// As many parts of about the same rank as one datagram holds: they are lost together.
void Link::pump_datagram(Peer& peer, uint8_t channel, Heap& frames, size_t max_bytes) {
  std::vector<Frame> bundle;
  size_t bytes = kMessageHeader;
  while (!frames.empty()) {
    const Frame& next = frames.front().frame;
    const size_t size = frame_overhead(next) + next.body.size();
    if (!bundle.empty() && bytes + size > max_bytes) break;
    bytes += size;
    bundle.push_back(pop_lossy(peer, frames));
  }
  transmit(peer, channel, std::move(bundle), false);
}

void Link::pump_trailing(Peer& peer) {
  while (!peer.trailing.empty() &&
         (peer.lossy_orders.empty() || *peer.lossy_orders.begin() > peer.trailing.front().order)) {
    std::vector<Frame> one;
    one.push_back(std::move(peer.trailing.front().frame));
    peer.trailing.pop_front();
    transmit(peer, kBulk, std::move(one), true);
  }
}

void Link::start_waits(Peer& peer) {
  if (!peer.has_new_lossy) return;
  peer.has_new_lossy = false;
  const uint64_t now_us = reactor_.now_us();
  for (auto& [channel, frames] : peer.lossy)
    for (Queued& queued : frames)
      if (queued.wait_us != 0 && queued.deadline_us == 0) queued.deadline_us = now_us + queued.wait_us;
}

void Link::drop_expired(Peer& peer) {
  if (peer.lossy_orders.empty()) return;
  const uint64_t now_us = reactor_.now_us();
  for (auto& [channel, frames] : peer.lossy) {
    const auto is_late = [&](const Queued& queued) {
      if (queued.deadline_us == 0 || queued.deadline_us > now_us) return false;
      peer.lossy_orders.erase(queued.order);
      ++counters_.of(tier_).dropped_parts;
      ++counters_.of(tier_).of_key(queued.frame.key).dropped_parts;
      return true;
    };
    const auto end = std::remove_if(frames.begin(), frames.end(), is_late);
    if (end == frames.end()) continue;
    frames.erase(end, frames.end());
    std::make_heap(frames.begin(), frames.end());
  }
}

// What waits is looked at again when the first of it is late.
void Link::watch_expiry(uint32_t node, Peer& peer) {
  uint64_t first_us = 0;
  for (const auto& [channel, frames] : peer.lossy)
    for (const Queued& queued : frames)
      if (queued.deadline_us != 0 && (first_us == 0 || queued.deadline_us < first_us)) first_us = queued.deadline_us;
  if (first_us == 0 || (peer.expiry_us != 0 && peer.expiry_us <= first_us)) return;
  peer.expiry_us = first_us;
  reactor_.at(first_us, [this, node] {
    Peer& late = peers_[node];
    late.expiry_us = 0;
    mark(node, late);
  });
}

Frame Link::pop_lossy(Peer& peer, Heap& heap) {
  peer.lossy_orders.erase(heap.front().order);
  return pop(heap, peer);
}

Frame Link::pop(Heap& heap, const Peer& peer) {
  std::pop_heap(heap.begin(), heap.end());
  Frame frame = std::move(heap.back().frame);
  const int64_t since_ns = heap.back().since_ns;
  heap.pop_back();
  if (since_ns != 0) {
    TraceEvent event = event_of(TraceKind::queue, frame, node_of_[peer.id]);
    event.begin_ns = since_ns;
    event.end_ns = Trace::now_ns();
    trace_->add(event);
  }
  return frame;
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
  TierCounters& c = counters_.of(tier_);
  Account header_account = Account::control;
  uint64_t counted = 0;
  for (const Frame& frame : frames) {
    const Account account = account_of(frame);
    if (header_account == Account::control) header_account = account;
    const Flow flow{account == Account::control ? kNoKey : frame.key,
                    account,
                    frame.codec,
                    1,
                    frame.body.size(),
                    frame_overhead(frame)};
    counted += flow.payload_bytes + flow.framing_bytes;
    count(peer, flow);
    if (account == Account::up) {
      c.up_payload_bytes += frame.body.size();
      if (frame.kind == FrameKind::push) c.up_payload_by_codec[frame.codec] += frame.body.size();
    } else if (account == Account::down) {
      c.down_payload_bytes += frame.body.size();
      c.down_payload_by_codec[frame.codec] += frame.body.size();
    }
  }
  // Where rates are measured, an acknowledgement that waits would count as time on the way.
  header.is_ack_awaited = acknowledged && (delivered_ || !peer.ranked.empty() || !peer.lossy_orders.empty() ||
                                           peer.in_flight_bytes + counted > peer.credit.bytes(credit_rule_) / 2);
  Message message = pack(header, std::move(frames));
  if (acknowledged) {
    if (peer.in_flight_bytes == 0) peer.credit.on_start(reactor_.now_us());
    peer.unacked[header.id] = {message.size(), reactor_.now_us()};
    peer.in_flight_bytes += message.size();
  }
  ++c.messages;
  count(peer, {kNoKey, header_account, 0, 0, 0,
               message.size() + transport_.overhead_to(peer.id, channel, message) - counted});
  transport_.send(peer.id, channel, std::move(message));
}

void Link::count(Peer& peer, const Flow& flow) {
  TierCounters& c = counters_.of(tier_);
  uint64_t* const totals[] = {&c.up_bytes, &c.down_bytes, &c.init_bytes, &c.control_bytes};
  *totals[size_t(flow.account)] += flow.payload_bytes + flow.framing_bytes;
  peer.flows.add(flow);
}

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
  if (!peer.ranked.empty() || !peer.lossy_orders.empty()) mark(node_of_[peer.id], peer);
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
