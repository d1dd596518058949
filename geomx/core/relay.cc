// Relay: see relay.h.
#include "relay.h"

namespace geomx {

void Relay::contribute(Frame own, int64_t rank, uint8_t channel) { merge(std::move(own), rank, channel); }

void Relay::take(Frame frame) {
  const Key* key = side_.keys.find(frame.key);
  if (key == nullptr || frame.part >= key->parts.size() || frame.contributors.empty()) return;
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
  if (p.have.empty()) {
    ++num_holding_;
    p.since_us = side_.reactor.now_us();
    p.is_droppable = true;
    p.channel = channel;
  }
  p.have = p.have | frame.contributors;
  p.rank = rank;
  p.priority = frame.priority;
  p.codec = frame.codec;
  p.is_droppable = p.is_droppable && frame.has(kDroppable);
  if (!p.is_droppable) p.channel = 0;
  p.bytes.push_back(std::move(frame.body));
  decide(id);
}

void Relay::decide(Id id) {
  auto found = pending_.find(id);
  if (found == pending_.end() || found->second.have.empty()) return;
  Pending& p = found->second;
  const auto [index, part] = id;
  const Key& key = *side_.keys.find(index);
  const PartView view = key.view(part, p.round, side_.tier, Direction::up);
  const Hop hop = side_.policies.overlay->up(view, side_.self, server(side_.server_of(key, part)), p.have, p.since_us,
                                             side_.reactor.now_us());
  if (p.timer) side_.reactor.cancel(p.timer);
  p.timer = 0;
  if (hop.waits) {
    p.timer = side_.reactor.at(hop.until_us, [this, id] { decide(id); });
    return;
  }
  hand_on(id, p, hop.to);
}

void Relay::hand_on(Id id, Pending& p, NodeId to) {
  const auto [index, part] = id;
  const Key& key = *side_.keys.find(index);
  Frame frame(FrameKind::push, index, part, p.round);
  frame.codec = p.codec;
  frame.contributors = p.have;
  frame.priority = p.priority;
  if (p.is_droppable) frame.flags |= kDroppable;
  if (p.bytes.size() == 1) {
    frame.body = std::move(p.bytes[0]);
  } else {
    const PartView view = key.view(part, p.round, side_.tier, Direction::up);
    Codec& codec = key.codec_of(side_.tier, Direction::up);
    if (Status status = codec.merge(view, p.bytes, &frame.body); !status.ok())
      return side_.fail("key \"" + key.spec.name + "\": " + status.message());
  }
  p.handed_on = p.handed_on | p.have;
  p.have = MemberSet();
  p.bytes.clear();
  --num_holding_;
  side_.link.send_ranked(to, std::move(frame), p.rank, p.channel);
  on_idle_();
}

void Relay::pass_on(const Frame& value) {
  const MemberSet owed = value.forward - MemberSet::of(side_.contributor);
  if (owed.empty()) return;
  const uint32_t first = owed.ranks().front();
  Frame next = value;
  next.forward = owed - MemberSet::of(first);
  next.flags &= uint8_t(~kForward);
  // The central party is behind the server that has the part.
  const bool is_central = first >= side_.num_members;
  const Key& key = *side_.keys.find(value.key);
  const NodeId to = is_central ? server(side_.server_of(key, value.part)) : member(first);
  const PartView view = key.view(value.part, value.round, side_.tier, Direction::down);
  side_.link.send_ranked(to, std::move(next), side_.policies.scheduler->rank(view, value.priority), 0);
}

void Relay::forget(uint32_t key, uint32_t part, uint32_t round) {
  auto found = pending_.find({key, part});
  if (found == pending_.end() || found->second.round != round || found->second.have.empty()) return;
  // What is still held here was answered without it; its contributors were told.
  if (found->second.timer) side_.reactor.cancel(found->second.timer);
  found->second.timer = 0;
  found->second.handed_on = found->second.handed_on | found->second.have;
  found->second.have = MemberSet();
  found->second.bytes.clear();
  --num_holding_;
}

}  // namespace geomx
