// Client: see client.h.
#include "client.h"

#include "identity_codec.h"
#include "relay.h"
#include "stopwatch.h"
#include "sums.h"

namespace geomx {
namespace {

constexpr uint64_t kIdleUs = 2000;  // between looks at what a relay still has to do

}  // namespace

// A server that is its own member has only its own parts: codecs of whole tensors see what it has.
Client::Client(Side& side)
    : side_(side), lane_(side, Direction::up, side.self.role == Role::server ? side.self.rank : kNobody) {
  if (side.policies.overlay) relay_ = std::make_unique<Relay>(side, [this] { finish_leaving(); });
}

Client::~Client() = default;

Client::State& Client::state_of(uint32_t key) {
  State& state = states_[key];
  if (state.parts.empty()) state.parts.resize(side_.keys.find(key)->parts.size());
  return state;
}

uint32_t Client::rounds_of(uint32_t key) const {
  const State* state = states_.find(key);
  uint32_t rounds = 0;
  if (state)
    for (const Part& part : state->parts) rounds = std::max(rounds, part.sent);
  return rounds;
}

void Client::push(uint32_t key, uint32_t part, Bytes values, int priority) {
  Part& p = state_of(key).parts[part];
  p.pending.push_back({std::move(values), priority});
  if (p.sent == p.answered && p.pending.size() == 1) {
    ++num_out_;
    start(key, part);
  }
}

// The part's next round begins: its values go to the lane, and whatever the lane lets go leaves.
void Client::start(uint32_t key, uint32_t part) {
  Part& p = state_of(key).parts[part];
  Pending next = std::move(p.pending.front());
  p.pending.pop_front();
  ++p.sent;
  std::vector<Encoded> ready;
  lane_.offer(key, part, p.sent, std::move(next.values), next.priority, &ready);
  for (const Encoded& encoded : ready) send(encoded);
}

void Client::send(const Encoded& encoded) {
  Frame frame(FrameKind::push, encoded.key, encoded.part, encoded.round);
  frame.codec = encoded.codec;
  frame.contributors = MemberSet::of(side_.contributor);
  frame.priority = encoded.priority;
  frame.body = encoded.bytes;
  if (encoded.service.is_droppable) frame.flags |= kDroppable;
  const uint32_t to = side_.server_of(*side_.keys.find(encoded.key), encoded.part);
  Part& part = state_of(encoded.key).parts[encoded.part];
  part.rank = encoded.rank;
  if (keeps()) part.kept = frame;
  if (relay_) {
    send_by_overlay(encoded, std::move(frame), to);
  } else if (!encoded.service.is_withheld) {
    const uint64_t wait_us = encoded.service.is_droppable ? side_.policies.transport->wait_us() : 0;
    side_.link.send_ranked(server(to), std::move(frame), encoded.rank, encoded.service.channel, wait_us);
  }
  if (side_.policies.transport->is_lossy()) note_sent(encoded, to);
}

// What can't merge gains nothing on the way, so it goes straight to its server.
void Client::send_by_overlay(const Encoded& encoded, Frame frame, uint32_t to) {
  state_of(encoded.key).parts[encoded.part].bypass_us = side_.policies.overlay->bypass_us();
  watch(encoded.key, encoded.part, encoded.round);
  if (merges(encoded)) return relay_->contribute(std::move(frame), encoded.rank, encoded.service.channel);
  if (!encoded.service.is_withheld)
    side_.link.send_ranked(server(to), std::move(frame), encoded.rank, encoded.service.channel);
  tell_bypass(encoded.key, encoded.part, encoded.round);
}

bool Client::merges(const Encoded& encoded) const {
  const Codec& codec = side_.keys.find(encoded.key)->codec_of(side_.tier, Direction::up);
  return codec.can_merge() && encoded.codec == codec.wire_id();
}

void Client::tell_bypass(uint32_t key, uint32_t part, uint32_t round) {
  const Key& k = *side_.keys.find(key);
  side_.policies.overlay->on_bypass(k.view(part, round, side_.tier, Direction::up), server(side_.server_of(k, part)));
}

// The end mark follows the last part of a shard's round. It says how long the round may wait for those that are missing
// then, and lists those that it may close without.
void Client::note_sent(const Encoded& encoded, uint32_t to) {
  State& state = state_of(encoded.key);
  uint32_t& unsent = state.unsent[to];
  const Key& key = *side_.keys.find(encoded.key);
  if (unsent == 0)
    for (uint32_t part = 0; part < key.parts.size(); ++part) unsent += side_.server_of(key, part) == to;
  if (encoded.service.is_droppable) state.droppable[to].push_back(encoded.part);
  if (--unsent != 0) return;
  Writer body;
  body.varint(side_.policies.transport->deadline_us()).varint(state.droppable[to].size());
  for (uint32_t part : state.droppable[to]) body.varint(part);
  state.droppable[to].clear();
  Frame end(FrameKind::end, encoded.key, 0, encoded.round);
  end.body = body.finish();
  side_.link.send_trailing(server(to), std::move(end));
}

// An overlay may swallow a contribution or its answer: after a while the root is asked, less and less often.
void Client::watch(uint32_t key, uint32_t part, uint32_t round) {
  Part& p = state_of(key).parts[part];
  p.bypass = side_.reactor.after(p.bypass_us, [=] {
    send_alone(key, part, round);
    Part& late = state_of(key).parts[part];
    if (late.answered >= round) return;
    tell_bypass(key, part, round);
    late.bypass_us *= 2;
    pull(key, part, round);
    watch(key, part, round);
  });
}

// Past the overlay: no answer came in time, or somebody we were merged with is in already. Once: it is reliable.
void Client::send_alone(uint32_t key, uint32_t part, uint32_t round) {
  Part& p = state_of(key).parts[part];
  if (p.sent != round || p.answered >= round || p.kept.round != round || p.alone == round) return;
  p.alone = round;
  side_.link.send_ranked(server(side_.server_of(*side_.keys.find(key), part)), p.kept, p.rank, 0);
}

void Client::take_overlap(const Frame& frame) {
  const Key* key = side_.keys.find(frame.key);
  if (key == nullptr || frame.part >= key->parts.size() || frame.contributors.contains(side_.contributor)) return;
  if (side_.policies.overlay) send_alone(frame.key, frame.part, frame.round);
}

void Client::pull(uint32_t key, uint32_t part, uint32_t min_round) {
  Frame frame(FrameKind::pull, key, part, min_round);
  if (min_round == 0) frame.flags |= kInit;
  side_.link.send(server(side_.server_of(*side_.keys.find(key), part)), std::move(frame));
}

void Client::send_initial(uint32_t key, uint32_t part, Bytes raw) {
  Frame frame(FrameKind::init, key, part, 0);
  frame.flags |= kInit;
  frame.codec = kRawWireId;
  frame.body = std::move(raw);
  const Key& found = *side_.keys.find(key);
  const int64_t rank = side_.policies.scheduler->rank(found.view(part, 0, side_.tier, Direction::up), 0);
  side_.link.send_ranked(server(side_.server_of(found, part)), std::move(frame), rank, 0);
}

void Client::take_value(Frame frame) {
  const Key* key = side_.keys.find(frame.key);
  if (key == nullptr || frame.part >= key->parts.size()) return;
  if (relay_ && frame.has(kForward)) relay_->pass_on(frame);
  Part& part = state_of(frame.key).parts[frame.part];
  const bool answers = part.sent > part.answered && frame.round == part.sent;
  if (frame.round < part.answered) return;  // an answer to a pull that has been overtaken
  if (!complete(*key, part, &frame)) return;
  if (answers) {
    part.answered = part.sent;
    if (part.bypass) side_.reactor.cancel(part.bypass);
    part.bypass = 0;
    const PartView view = key->view(frame.part, frame.round, side_.tier, Direction::down);
    side_.policies.scheduler->on_answer(view);
    if (relay_) {
      relay_->forget(frame.key, frame.part, frame.round);
      side_.policies.overlay->on_answer(view);
    }
    const bool applied = frame.has(kEveryone) || frame.contributors.contains(side_.contributor);
    side_.counters.of(side_.tier).applied_parts += applied;
    if (!applied) {
      ++side_.counters.of(side_.tier).of_key(frame.key).returned_parts;
      side_.counters.of(side_.tier).lost_reliable_parts += !part.kept.has(kDroppable);
      if (gives_back_) lane_.give_back(part.kept);
    }
    part.kept = Frame();
  }
  if (on_value_) on_value_(frame, answers);
  if (!answers) return;
  if (!part.pending.empty()) return start(frame.key, frame.part);
  --num_out_;
  finish_leaving();
}

// A difference becomes the whole value; false if it can't, or isn't needed any more.
bool Client::complete(const Key& key, Part& part, Frame* frame) {
  const bool is_known = key.has_codec(side_.tier, Direction::down);
  if (is_known && !key.is_delta(side_.tier)) {
    part.base = Bytes();
    return true;
  }
  const size_t width = size_of(key.spec.dtype);
  if (frame->codec == kRawWireId && frame->body.size() == key.parts[frame->part].length * width) {
    part.base = from_raw(key.spec.dtype, frame->body);
    part.base_round = frame->round;
    return true;
  }
  if (!is_known) return true;
  if (!part.base.empty() && frame->round <= part.base_round) return false;  // the whole value was faster
  if (part.base.empty() || frame->round != part.base_round + 1) {
    pull(frame->key, frame->part, frame->round);
    return false;
  }
  Codec& codec = key.codec_of(side_.tier, Direction::down);
  Status status;
  if (frame->codec != codec.wire_id()) {
    status = Status::error("a value came in a format that was not agreed on");
  } else {
    const PartView view = key.view(frame->part, frame->round, side_.tier, Direction::down);
    Bytes next = Bytes::allocate(part.base.size());  // others may still read the old one
    status = codec.add(view, frame->body, part.base, next.writable());
    part.base = std::move(next);
  }
  if (!status.ok()) {
    side_.fail("key \"" + key.spec.name + "\": " + status.message());
    return false;
  }
  part.base_round = frame->round;
  frame->codec = kRawWireId;
  frame->body = to_raw(key.spec.dtype, part.base);
  return true;
}

Status Client::decode(const Frame& frame, Bytes* values) {
  const Key& key = *side_.keys.find(frame.key);
  const PartView view = key.view(frame.part, frame.round, side_.tier, Direction::down);
  KeyWork& work = side_.counters.of(side_.tier).of_key(frame.key);
  const Stopwatch watch(&side_.counters.decode_s, &work.decode_s[size_t(Direction::down)]);
  if (frame.codec == kRawWireId) return identity_codec().decode(view, frame.body, values);
  Codec& codec = key.codec_of(side_.tier, Direction::down);
  if (frame.codec != codec.wire_id()) return Status::error("a value came in a format that was not agreed on");
  return codec.decode(view, frame.body, values);
}

void Client::leave(std::function<void()> done) {
  left_ = std::move(done);
  finish_leaving();
}

// The leave carries each key's last round, so it may overtake what it follows.
void Client::finish_leaving() {
  if (!left_ || has_left_ || num_out_ != 0) return;
  if (relay_) relay_->retire();
  if (relay_ && !relay_->is_idle()) {
    if (!is_looking_) {
      is_looking_ = true;
      side_.reactor.after(kIdleUs, [this] {
        is_looking_ = false;
        finish_leaving();
      });
    }
    return;
  }
  has_left_ = true;
  uint32_t count = 0;
  Writer rounds;
  states_.for_each([&](uint32_t key, const State&) {
    ++count;
    rounds.varint(key).varint(rounds_of(key));
  });
  const Bytes list = rounds.finish();
  const Bytes bytes = Writer().varint(count).raw(list.data(), list.size()).finish();
  for (uint32_t rank = 0; rank < side_.num_servers; ++rank) {
    leave_owed_.insert(server(rank));
    Frame frame(FrameKind::leave);
    frame.body = bytes;
    side_.link.send(server(rank), std::move(frame));
  }
}

void Client::take_leave_taken(NodeId from) {
  if (leave_owed_.erase(from) == 0 || !leave_owed_.empty()) return;
  left_();
}

}  // namespace geomx
