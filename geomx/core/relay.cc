// Relay: see relay.h.
#include "relay.h"

namespace geomx {
namespace {

constexpr uint64_t kRetryUs = 2000;
constexpr uint32_t kTries = 5000;

}  // namespace

void Relay::contribute(Frame own, int64_t rank, uint8_t channel) { merge(std::move(own), rank, channel); }

// Directory's notices come from servers: another member may know of a key, or of the seal, a moment before us.
void Relay::take(Frame frame, uint32_t tries) {
  const Key* key = side_.keys.find(frame.key);
  if (key == nullptr || !key->has_codec(side_.tier, Direction::up)) {
    if (tries < kTries)
      side_.reactor.after(kRetryUs, [this, tries, f = std::move(frame)]() mutable { take(std::move(f), tries + 1); });
    return;
  }
  if (frame.part >= key->parts.size() || frame.contributors.empty()) return;
  const PartView view = key->view(frame.part, frame.round, side_.tier, Direction::up);
  const int64_t rank = side_.policies.scheduler->rank(view, frame.priority);
  merge(std::move(frame), rank, 0);
}

void Relay::merge(Frame frame, int64_t rank, uint8_t channel) {
  const Id id{frame.key, frame.part};
  Pending& p = pending_[id];
  if (frame.round < p.round) return;  // late: its contributors hear from the root
  if (frame.round > p.round) {
    if (!p.have.empty()) --num_holding_;
    if (p.timer) side_.reactor.cancel(p.timer);
    p = Pending();
    p.round = frame.round;
  }
  const MemberSet seen = p.have | p.handed_on;
  if (checks_contributors_ && seen.intersects(frame.contributors)) return;  // a double; the root sorts out the rest
  p.priority = p.have.empty() ? frame.priority : std::max(p.priority, frame.priority);
  if (p.have.empty()) {
    ++num_holding_;
    p.since_us = side_.reactor.now_us();
    p.is_droppable = true;
    p.channel = channel;
  }
  p.have = p.have | frame.contributors;
  p.rank = rank;
  p.is_droppable = p.is_droppable && frame.has(kDroppable);
  if (!p.is_droppable) p.channel = 0;
  if (frame.body.is_foreign()) frame.body = Bytes::copy(frame.body.data(), frame.body.size());
  p.held.push_back(std::move(frame));
  decide(id);
}

void Relay::retire() {
  if (is_retired_) return;
  is_retired_ = true;
  for (auto& [id, pending] : pending_) decide(id);
}

void Relay::wake(uint32_t key, uint32_t part) { decide({key, part}); }

void Relay::decide(Id id) {
  auto found = pending_.find(id);
  if (found == pending_.end() || found->second.have.empty()) return;
  Pending& p = found->second;
  const auto [index, part] = id;
  const Key& key = *side_.keys.find(index);
  if (p.timer) side_.reactor.cancel(p.timer);
  p.timer = 0;
  if (is_retired_) return hand_on(id, p, server(side_.server_of(key, part)));
  const PartView view = key.view(part, p.round, side_.tier, Direction::up);
  Held held{p.have, 0, p.since_us};
  for (const Frame& frame : p.held) held.bytes = std::max<uint64_t>(held.bytes, frame.body.size());
  const Hop hop =
      side_.policies.overlay->up(view, side_.self, server(side_.server_of(key, part)), held, side_.reactor.now_us());
  if (hop.waits) {
    p.timer = side_.reactor.at(hop.until_us, [this, id] { decide(id); });
    return;
  }
  hand_on(id, p, hop.to);
}

void Relay::hand_on(Id id, Pending& p, NodeId to) {
  const auto [index, part] = id;
  const Key& key = *side_.keys.find(index);
  if (!merge_held(key, part, p)) return;
  // What doesn't merge gains nothing by a relay.
  if (p.held.size() > 1) to = server(side_.server_of(key, part));
  for (Frame& frame : p.held) send(to, std::move(frame), p);
  p.handed_on = p.handed_on | p.have;
  p.have = MemberSet();
  p.held.clear();
  --num_holding_;
  on_idle_();
}

// Into one, where the key's codec can: what travels in another one stays as it is.
bool Relay::merge_held(const Key& key, uint32_t part, Pending& p) {
  Codec& codec = key.codec_of(side_.tier, Direction::up);
  std::vector<Bytes> bytes;
  for (const Frame& frame : p.held)
    if (frame.codec == codec.wire_id() && codec.can_merge()) bytes.push_back(frame.body);
  if (p.held.size() < 2 || bytes.size() != p.held.size()) return true;
  Frame merged(FrameKind::push, key.spec.index, part, p.round);
  merged.codec = codec.wire_id();
  merged.contributors = p.have;
  merged.priority = p.priority;
  const PartView view = key.view(part, p.round, side_.tier, Direction::up);
  if (Status status = codec.merge(view, bytes, &merged.body); !status.ok()) {
    side_.fail("key \"" + key.spec.name + "\": " + status.message());
    return false;
  }
  if (merged.body.data() == nullptr) return true;
  p.held.clear();
  p.held.push_back(std::move(merged));
  return true;
}

void Relay::send(NodeId to, Frame frame, const Pending& p) {
  frame.flags &= uint8_t(~kDroppable);
  if (p.is_droppable) frame.flags |= kDroppable;
  side_.link.send_ranked(to, std::move(frame), p.rank, p.channel);
}

// Each tree of the route goes to its first member. The central party is behind the server that has the part.
void Relay::pass_on(const Frame& value) {
  const Key& key = *side_.keys.find(value.key);
  const PartView view = key.view(value.part, value.round, side_.tier, Direction::down);
  const int64_t rank = side_.policies.scheduler->rank(view, value.priority);
  for (size_t at = 0; at < value.forward.size();) {
    const Step step = value.forward[at];
    const size_t end = std::min(at + 1 + step.below, value.forward.size());
    Frame next = value;
    next.flags &= uint8_t(~kForward);
    next.forward.assign(value.forward.begin() + long(at) + 1, value.forward.begin() + long(end));
    const bool is_central = step.rank >= side_.num_members;
    const NodeId to = is_central ? server(side_.server_of(key, value.part)) : member(step.rank);
    if (to != side_.self) side_.link.send_ranked(to, std::move(next), rank, 0);
    at = end;
  }
  passed_us_ = side_.reactor.now_us();
}

// Whoever a value was passed on to may need it to end its round; after a while it asks the root instead.
bool Relay::is_idle() const {
  if (num_holding_ != 0) return false;
  if (passed_us_ == 0 || side_.link.is_idle()) return true;
  return side_.reactor.now_us() > passed_us_ + side_.policies.overlay->bypass_us();
}

void Relay::forget(uint32_t key, uint32_t part, uint32_t round) {
  auto found = pending_.find({key, part});
  if (found == pending_.end() || found->second.round != round || found->second.have.empty()) return;
  // What is still held here was answered without it; its contributors were told.
  if (found->second.timer) side_.reactor.cancel(found->second.timer);
  found->second.timer = 0;
  found->second.handed_on = found->second.handed_on | found->second.have;
  found->second.have = MemberSet();
  found->second.held.clear();
  --num_holding_;
}

}  // namespace geomx
