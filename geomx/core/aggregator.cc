// Aggregator: see aggregator.h.
#include "aggregator.h"

#include <algorithm>

#include "identity_codec.h"
#include "stopwatch.h"
#include "sums.h"

namespace geomx {
namespace {

constexpr uint64_t kMaxWaitUs = 60'000'000;  // for droppable parts, whatever their sender says

}  // namespace

Aggregator::Aggregator(Side& side, uint32_t num_contributors, MemberSet observers, uint32_t own_server, SyncPolicy sync,
                       Upstream& upstream)
    : side_(side),
      num_contributors_(num_contributors),
      observers_(std::move(observers)),
      own_server_(own_server),
      sync_(sync),
      upstream_(upstream),
      lane_(side, Direction::down, own_server),
      last_rounds_(num_contributors) {}

Aggregator::State& Aggregator::state_of(uint32_t index) {
  State& state = states_[index];
  if (state.parts.empty()) {
    const Key& key = *side_.keys.find(index);
    state.parts.resize(key.parts.size());
    for (size_t i = 0; i < key.parts.size(); ++i) {
      state.parts[i].is_here = side_.server_of(key, uint32_t(i)) == own_server_;
      state.parts[i].lines.resize(num_lines());
    }
  }
  return state;
}

// Null for what isn't this server's: a malformed frame, counted by the caller.
Aggregator::Part* Aggregator::part_of(const Frame& frame) {
  const Key* key = side_.keys.find(frame.key);
  if (key == nullptr || frame.part >= key->parts.size()) return nullptr;
  Part& part = state_of(frame.key).parts[frame.part];
  return part.is_here ? &part : nullptr;
}

// Members that train and have not left before this round.
MemberSet Aggregator::expected(uint32_t key, uint32_t line, uint32_t round) const {
  MemberSet out;
  for (uint32_t rank = 0; rank < num_contributors_; ++rank) {
    if (observers_.contains(rank) || (sync_.is_mixed && rank != line)) continue;
    const auto& last = last_rounds_[rank];
    if (last) {
      auto found = last->find(key);
      if (found == last->end() || found->second < round) continue;
    }
    out.insert(rank);
  }
  return out;
}

void Aggregator::take_push(NodeId from, Frame frame) {
  Part* part = part_of(frame);
  const std::vector<uint32_t> ranks = frame.contributors.ranks();
  TierCounters& counters = side_.counters.of(side_.tier);
  if (part == nullptr || ranks.empty() || ranks.back() >= num_contributors_ ||
      frame.contributors.intersects(observers_)) {
    ++counters.refused_frames;
    return;
  }
  const uint32_t index = line_of(ranks.front());
  Line& line = part->lines[index];
  if (is_late(line, frame) || (checks_contributors_ && line.in.contains(frame.contributors))) {
    ++counters.dropped_parts;
    ++counters.of_key(frame.key).dropped_parts;
    return;
  }
  if (frame.round != line.open || (sync_.is_mixed && ranks.size() != 1)) {
    ++counters.refused_frames;
    return;
  }
  if (checks_contributors_ && line.in.intersects(frame.contributors)) return refuse_overlap(frame, line);
  {
    TraceEvent event = side_.event(TraceKind::merge, Direction::up, frame.key, frame.part, frame.round);
    event.peer = from.packed();
    const TraceSpan span(side_.trace, event);
    add_in(*side_.keys.find(frame.key), line, frame);
  }
  judge(frame.key, frame.part, index);
}

// A merged value overlaps what is in: who isn't in yet must send alone.
void Aggregator::refuse_overlap(const Frame& frame, const Line& line) {
  Frame answer(FrameKind::overlap, frame.key, frame.part, frame.round);
  answer.contributors = line.in;
  (frame.contributors - line.in).for_each([&](uint32_t rank) { side_.link.send(side_.node_of(rank), answer); });
}

void Aggregator::add_in(const Key& key, Line& line, const Frame& frame) {
  if (line.in.empty()) {
    line.since_us = side_.reactor.now_us();
    line.priority = frame.priority;
  }
  line.priority = std::max(line.priority, frame.priority);
  if (sync_.is_deterministic)
    line.held[frame.contributors.ranks().front()] = frame.body;
  else if (!add_bytes(key, line, frame))
    return;
  line.in = line.in | frame.contributors;
  side_.counters.of(side_.tier).added_parts += frame.contributors.count();
}

bool Aggregator::add_bytes(const Key& key, Line& line, const Frame& frame) {
  const PartView view = key.view(frame.part, frame.round, side_.tier, Direction::up);
  Codec* const codec = codec_of(key, frame.codec);
  KeyWork& work = side_.counters.of(side_.tier).of_key(frame.key);
  const Stopwatch watch(&side_.counters.decode_s, &work.decode_s[size_t(Direction::up)]);
  Status status;
  if (codec == nullptr) {
    status = Status::error("a contribution came in a format that was not agreed on");
  } else if (line.in.empty() && line.sum.empty()) {
    status = codec->decode(view, frame.body, &line.sum);
  } else {
    status = accumulate(*codec, line, view, frame);
  }
  if (status.ok()) return true;
  side_.fail("key \"" + key.spec.name + "\": " + status.message());
  return false;
}

// The key's own, or the one that the transport may use instead of it.
Codec* Aggregator::codec_of(const Key& key, uint32_t wire_id) const {
  Codec& own = key.codec_of(side_.tier, Direction::up);
  Codec* const coarse = side_.policies.transport->coarse();
  if (wire_id == own.wire_id()) return &own;
  return coarse != nullptr && wire_id == coarse->wire_id() ? coarse : nullptr;
}

// In place, or, where the first contribution's memory is not ours to write to, into memory that the sum can leave from.
Status Aggregator::accumulate(Codec& codec, Line& line, const PartView& view, const Frame& frame) {
  if (line.sum.is_unique()) return codec.accumulate(view, frame.body, line.sum.writable());
  Bytes sum = upstream_.allocate(view.key, view.part, line.sum.size());
  const Status status = codec.add(view, frame.body, line.sum, sum.writable());
  line.sum = std::move(sum);
  return status;
}

void Aggregator::take_end(NodeId from, const Frame& frame) {
  const Key* key = side_.keys.find(frame.key);
  const uint32_t sender = side_.contributor_of(from);
  if (key == nullptr || sender >= num_contributors_) {
    ++side_.counters.of(side_.tier).refused_frames;
    return;
  }
  State& state = state_of(frame.key);
  if (state.ends[frame.round].count(sender)) return;
  Ended ended;
  Reader in(frame.body);
  const uint64_t wait_us = std::min(in.varint(), kMaxWaitUs);
  const uint64_t count = in.varint();
  for (uint64_t i = 0; i < count && in.ok(); ++i)
    ended.droppable_parts.insert(std::min(in.varint32(), uint32_t(key->parts.size())));
  ended.deadline_us = side_.reactor.now_us() + wait_us;
  state.ends[frame.round].emplace(sender, std::move(ended));
  const uint32_t index = frame.key, line = line_of(sender), round = frame.round;
  side_.reactor.after(wait_us, [=] { judge_droppable(index, line, round); });
}

void Aggregator::judge(uint32_t index, uint32_t part, uint32_t line_index) {
  Line& line = state_of(index).parts[part].lines[line_index];
  if (line.is_closed) return;
  const uint32_t round = line.open;
  const MemberSet wanted = expected(index, line_index, round);
  if (wanted.empty() && line.in.empty()) return;
  if (line.in.contains(wanted) && !is_too_far(index, part, line_index)) close(index, part, line_index);
  // It may have been the last reliable part that others were waiting for.
  if (side_.policies.transport->is_lossy()) judge_droppable(index, line_index, round);
}

void Aggregator::judge_all(uint32_t index) {
  State& state = state_of(index);
  for (uint32_t part = 0; part < state.parts.size(); ++part)
    if (state.parts[part].is_here)
      for (uint32_t line = 0; line < state.parts[part].lines.size(); ++line) judge(index, part, line);
}

// Every missing member has ended its round, its deadline has passed, and it said that the part may be missing.
bool Aggregator::may_miss(const State& state, uint32_t round, uint32_t part, const MemberSet& missing) const {
  auto ends = state.ends.find(round);
  bool may = true;
  missing.for_each([&](uint32_t rank) {
    if (ends == state.ends.end() || !ends->second.count(rank)) {
      may = false;
      return;
    }
    may = may && ends->second.at(rank).droppable_parts.contains(part);
  });
  return may;
}

// The parts of a shard that may close with holes do so together: when all that is reliable is in and every sender's
// end mark and deadline are past.
void Aggregator::judge_droppable(uint32_t index, uint32_t line_index, uint32_t round) {
  State& state = state_of(index);
  const MemberSet wanted = expected(index, line_index, round);
  const auto ends = state.ends.find(round);
  if (ends == state.ends.end()) return;
  bool may = true;
  wanted.for_each([&](uint32_t rank) {
    auto ended = ends->second.find(rank);
    if (waits_for_ends_ && (ended == ends->second.end() || ended->second.deadline_us > side_.reactor.now_us()))
      may = false;
  });
  std::vector<uint32_t> open;
  for (uint32_t part = 0; may && part < state.parts.size(); ++part) {
    const Part& p = state.parts[part];
    if (!p.is_here) continue;
    const Line& line = p.lines[line_index];
    if (line.open < round) may = false;  // an older round of it is still out
    if (line.open != round || line.is_closed) continue;
    if (wanted.empty() && line.in.empty()) continue;  // another line's round
    may = may && (!waits_for_ends_ || may_miss(state, round, part, wanted - line.in));
    open.push_back(part);
  }
  if (!may) return;
  for (uint32_t part : open)
    if (!is_too_far(index, part, line_index)) close(index, part, line_index);
}

// MixedSync with a bound: nobody may be more than `staleness` rounds ahead of the slowest that still trains.
bool Aggregator::is_too_far(uint32_t index, uint32_t part, uint32_t line) const {
  if (!sync_.is_mixed || sync_.staleness == 0) return false;
  const Part& p = states_.find(index)->parts[part];
  for (uint32_t other = 0; other < p.lines.size(); ++other) {
    const uint32_t done = p.lines[other].open - 1;
    if (!expected(index, other, done + 1).empty() && p.lines[line].open > done + sync_.staleness) return true;
  }
  return false;
}

void Aggregator::close(uint32_t index, uint32_t part, uint32_t line_index) {
  const Key& key = *side_.keys.find(index);
  Line& line = state_of(index).parts[part].lines[line_index];
  line.is_closed = true;
  trace_open(index, part, line);
  line.owed = expected(index, line_index, line.open) | line.in;
  side_.counters.of(side_.tier).missing_parts += line.owed.count() - line.in.count();
  Frame frame(FrameKind::push, index, part, line.open);
  frame.codec = key.codec_of(side_.tier, Direction::up).wire_id();
  MemberSet in = std::move(line.in);
  line.in = MemberSet();
  for (auto& [rank, bytes] : line.held) {
    frame.body = std::move(bytes);
    if (!add_bytes(key, line, frame)) return;
    line.in.insert(rank);
  }
  line.held.clear();
  line.in = std::move(in);
  if (line.sum.empty()) line.sum = zeros(key.sum_bytes(part));  // nobody's got through
  if (on_close_) on_close_(index, part, line_index, line.open, line.sum);
  Bytes sum = std::move(line.sum);
  line.sum = Bytes();
  ++side_.counters.rounds;
  const MemberSet contributors = line.in;
  upstream_.offer(index, part, line_index, line.open, std::move(sum), contributors, line.priority);
}

// How long the round was open: since its first contribution.
void Aggregator::trace_open(uint32_t index, uint32_t part, const Line& line) const {
  if (side_.trace == nullptr || !side_.trace->covers(line.open) || line.in.empty()) return;
  TraceEvent event = side_.event(TraceKind::open, Direction::up, index, part, line.open);
  event.end_ns = Trace::now_ns();
  event.begin_ns = event.end_ns - int64_t(side_.reactor.now_us() - line.since_us) * 1000;
  side_.trace->add(event);
}

void Aggregator::finish(uint32_t index, uint32_t part, uint32_t line_index, Bytes value) {
  const Key& key = *side_.keys.find(index);
  Part& p = state_of(index).parts[part];
  const uint32_t round = p.lines[line_index].open;
  if (key.is_delta(side_.tier)) {
    // At the top members that ask before the first round all get the initial value.
    if (!sync_.is_mixed && upstream_.is_top() && round == 1 && p.has_value)
      lane_.set_base(index, part, line_index, from_raw(key.spec.dtype, p.value));
    if (sync_.is_mixed) p.value = to_raw(key.spec.dtype, value);
  }
  std::vector<Encoded> ready;
  lane_.offer(index, part, round, std::move(value), p.lines[line_index].priority, &ready, line_index);
  for (const Encoded& encoded : ready) answer(index, encoded.part, line_index, encoded);
}

void Aggregator::answer(uint32_t index, uint32_t part, uint32_t line_index, Encoded encoded) {
  const Key& key = *side_.keys.find(index);
  State& state = state_of(index);
  Part& p = state.parts[part];
  Line& line = p.lines[line_index];
  if (key.is_delta(side_.tier)) {
    p.codec = kRawWireId;
    if (!sync_.is_mixed) p.value = Bytes();  // the lane's base is
    lane_.sent(encoded, line_index);
    upstream_.gave(index, part, line_index, lane_.base(index, part, line_index).data());
  } else {
    encoded.bytes = own(encoded.bytes, line.owed);
    p.value = encoded.bytes;
    p.codec = encoded.codec;
  }
  p.has_value = true;
  p.is_wanted = false;
  line.last_in = std::move(line.in);
  const MemberSet owed = std::move(line.owed);
  line.in = line.owed = MemberSet();
  line.is_closed = false;
  ++line.open;
  const uint32_t oldest = line.open > 2 ? line.open - 2 : 0;
  state.ends.erase(state.ends.begin(), state.ends.lower_bound(sync_.is_mixed ? 0 : oldest));
  if (side_.policies.overlay) {
    const PartView view = key.view(part, line.open - 1, side_.tier, Direction::down);
    const Route route = side_.policies.overlay->down(view, owed, encoded.bytes.size());
    for (size_t at = 0; at < route.size(); at += 1 + route[at].below) {
      const auto first = route.begin() + long(at) + 1;
      send_value(key, part, line, side_.node_of(route[at].rank), Route(first, first + route[at].below), encoded);
    }
  } else {
    owed.for_each([&](uint32_t rank) { send_value(key, part, line, side_.node_of(rank), {}, encoded); });
  }
  serve_waiters(index, part);
  if (sync_.is_mixed && sync_.staleness) {
    for (uint32_t other = 0; other < p.lines.size(); ++other)
      if (other != line_index) judge(index, part, other);
  }
}

// A value is kept until the next one: memory of others is given back before, and where the members share ours the copy
// is what they are sent.
Bytes Aggregator::own(const Bytes& value, const MemberSet& receivers) {
  if (!value.is_foreign()) return value;
  const uint32_t first = receivers.empty() ? 0 : receivers.ranks().front();
  Bytes copy = side_.link.allocate(side_.node_of(first), value.size());
  std::memcpy(copy.writable(), value.data(), value.size());
  return copy;
}

// What is there without a round: for a member that gets differences what it has, or will have when they are with it.
Encoded Aggregator::whole_value(const Key& key, uint32_t part, uint32_t line, bool is_member) {
  const Part& p = states_.find(key.spec.index)->parts[part];
  Encoded out;
  out.bytes = p.value;
  out.codec = p.codec;
  out.rank = side_.policies.scheduler->rank(key.view(part, 0, side_.tier, Direction::down), 0);
  if (!key.is_delta(side_.tier) || (sync_.is_mixed && !is_member)) return out;
  const Bytes& base = lane_.base(key.spec.index, part, line);
  if (base.empty()) return out;
  const Bytes raw = to_raw(key.spec.dtype, base);
  out.bytes = Bytes::copy(raw.data(), raw.size());
  return out;
}

void Aggregator::send_value(const Key& key, uint32_t part, const Line& line, NodeId to, const Route& forward,
                            const Encoded& encoded) {
  const Part& p = states_.find(key.spec.index)->parts[part];
  Frame frame(FrameKind::value, key.spec.index, part, line.open - 1);
  frame.codec = encoded.codec;
  frame.body = encoded.bytes;
  frame.forward = forward;
  if (!forward.empty()) frame.priority = encoded.priority;  // for whoever passes it on
  if (frame.round == 0) frame.flags |= kInit;
  if (line.last_in == expected(key.spec.index, uint32_t(&line - p.lines.data()), frame.round))
    frame.flags |= kEveryone;
  else
    frame.contributors = line.last_in;
  side_.link.send_ranked(to, std::move(frame), encoded.rank, 0);
}

void Aggregator::take_pull(NodeId from, const Frame& frame) {
  Part* part = part_of(frame);
  if (part == nullptr || from.role == Role::scheduler) {
    ++side_.counters.of(side_.tier).refused_frames;
    return;
  }
  const bool is_observer = !contributes(from);
  if (side_.policies.overlay && !is_observer && frame.round != 0 && frame.round + 1 == part->lines[0].open) {
    const Key& key = *side_.keys.find(frame.key);
    side_.policies.overlay->on_missed(key.view(frame.part, frame.round, side_.tier, Direction::down),
                                      side_.contributor_of(from));
  }
  const bool asks_above = is_observer && !upstream_.is_top() && expected(frame.key, 0, part->lines[0].open).empty();
  part->waiters.push_back({from, frame.round, asks_above});
  if ((asks_above || !part->has_value) && !part->is_wanted) {
    part->is_wanted = true;
    upstream_.want(frame.key, frame.part);
  }
  serve_waiters(frame.key, frame.part);
}

void Aggregator::serve_waiters(uint32_t index, uint32_t part_index) {
  Part& part = state_of(index).parts[part_index];
  if (!part.has_value) return;
  const Key& key = *side_.keys.find(index);
  std::vector<Waiter> still;
  for (const Waiter& waiter : part.waiters) {
    const bool counts = contributes(waiter.who);
    const uint32_t line_index = counts ? line_of(side_.contributor_of(waiter.who)) : 0;
    const Line& line = part.lines[line_index];
    if (waiter.asks_above || (counts && line.open - 1 < waiter.min_round)) {
      still.push_back(waiter);
      continue;
    }
    send_value(key, part_index, line, waiter.who, {}, whole_value(key, part_index, line_index, counts));
    const bool is_newest = !key.is_delta(side_.tier) || lane_.base(index, part_index, line_index).empty();
    if (counts && sync_.is_mixed && is_newest) upstream_.gave(index, part_index, line_index);
  }
  part.waiters = std::move(still);
}

void Aggregator::take_initial(const Frame& frame) {
  Part* part = part_of(frame);
  if (part == nullptr || part->has_value) return;
  upstream_.initial(frame.key, frame.part, frame.body);
}

void Aggregator::set_value(uint32_t index, uint32_t part_index, uint32_t round, Bytes raw) {
  Part& part = state_of(index).parts[part_index];
  part.is_wanted = false;
  for (Waiter& waiter : part.waiters) waiter.asks_above = false;
  // Where no rounds keep it current, the same round's value may be newer: others' rounds go on by themselves in mixed
  // sync.
  const uint32_t open = part.lines[0].open;
  const bool has_rounds = !expected(index, 0, open).empty();
  if (!part.has_value || round >= open || (!has_rounds && round + 1 >= open)) {
    part.value = own(raw, {});
    part.codec = kRawWireId;
    part.has_value = true;
    if (!has_rounds) part.lines[0].open = round + 1;
  }
  serve_waiters(index, part_index);
}

void Aggregator::take_leave(NodeId from, const Frame& frame) {
  const uint32_t sender = side_.contributor_of(from);
  if (from.role == Role::scheduler) return;
  if (!left_.contains(sender)) {
    left_.insert(sender);
    if (contributes(from)) {
      last_rounds_[sender] = read_last_rounds(frame);
      judge_everything();
    }
  }
  side_.link.send(from, Frame(FrameKind::leave_taken));
  if (told_all_left_) return;
  for (uint32_t rank = 0; rank < num_contributors_; ++rank)
    if (!observers_.contains(rank) && !left_.contains(rank)) return;
  told_all_left_ = true;
  upstream_.all_left();
}

std::unordered_map<uint32_t, uint32_t> Aggregator::read_last_rounds(const Frame& leave) {
  std::unordered_map<uint32_t, uint32_t> last;
  Reader in(leave.body);
  const uint64_t count = in.varint();
  for (uint64_t i = 0; i < count && in.ok(); ++i) {
    const uint32_t key = in.varint32();
    last[key] = in.varint32();
  }
  return last;
}

void Aggregator::judge_everything() {
  states_.for_each([&](uint32_t key, State& state) {
    judge_all(key);
    std::vector<uint32_t> rounds;
    for (const auto& [round, ended] : state.ends) rounds.push_back(round);
    for (uint32_t round : rounds)
      for (uint32_t line = 0; line < num_lines(); ++line) judge_droppable(key, line, round);
  });
}

std::optional<Aggregator::Stall> Aggregator::oldest_stall() const {
  std::optional<Stall> oldest;
  states_.for_each([&](uint32_t key, const State& state) {
    for (uint32_t part = 0; part < state.parts.size(); ++part) {
      for (uint32_t i = 0; i < state.parts[part].lines.size(); ++i) {
        const Line& line = state.parts[part].lines[i];
        if (line.is_closed || line.in.empty() || (oldest && oldest->since_us <= line.since_us)) continue;
        oldest = Stall{key, part, line.open, expected(key, i, line.open) - line.in, line.since_us};
      }
    }
  });
  return oldest;
}

bool Aggregator::has_open_rounds() const {
  bool any = false;
  states_.for_each([&](uint32_t, const State& state) {
    for (const Part& part : state.parts)
      for (const Line& line : part.lines) any = any || line.is_closed || !line.in.empty();
  });
  return any;
}

}  // namespace geomx
