// Lane: see lane.h.
#include "lane.h"

#include <cmath>

#include "identity_codec.h"
#include "stopwatch.h"
#include "sums.h"

namespace geomx {
namespace {

// The parts' values as one block: theirs if they already lie one behind the other, else a copy.
Bytes contiguous(const std::map<uint32_t, std::pair<Bytes, int>>& values) {
  Bytes block;
  size_t total = 0;
  bool is_one = true;
  for (const auto& [part, entry] : values) {
    if (entry.first.empty()) continue;
    if (total == 0)
      block = entry.first;
    else
      is_one = is_one && block.is_followed_by(entry.first, total);
    total += entry.first.size();
  }
  if (is_one) return block.slice(0, total);
  Bytes out = Bytes::allocate(total);
  size_t at = 0;
  for (const auto& [part, entry] : values) {
    if (entry.first.empty()) continue;
    std::memcpy(out.writable() + at, entry.first.data(), entry.first.size());
    at += entry.first.size();
  }
  return out;
}

// What a receiver makes of values that travel whole, in memory of our own.
void set_copy(DType dtype, const Bytes& values, Bytes* base) {
  const Bytes received = from_raw(dtype, to_raw(dtype, values));
  *base = received.is_unique() ? received : Bytes::copy(received.data(), received.size());
}

}  // namespace

Lane::Lane(Side& side, Direction direction, uint32_t own_server)
    : side_(side), direction_(direction), own_server_(own_server) {}

// Parts that must be looked at together: of a tensor for a codec that wants it whole, else of a shard.
bool Lane::gathers(const Key& key) const {
  return classifies() || key.codec_of(side_.tier, direction_).scope() != CodecScope::part;
}

uint32_t Lane::group_of(const Key& key, uint32_t part) const {
  const bool whole = key.codec_of(side_.tier, direction_).scope() == CodecScope::tensor;
  return whole && own_server_ == kNobody ? 0 : side_.server_of(key, part);
}

bool Lane::same_group(const Key& key, uint32_t part, uint32_t other) const {
  if (own_server_ != kNobody && side_.server_of(key, other) != own_server_) return false;
  return group_of(key, part) == group_of(key, other);
}

uint32_t Lane::group_size(const Key& key, uint32_t part) const {
  uint32_t size = 0;
  for (uint32_t other = 0; other < key.parts.size(); ++other) size += same_group(key, part, other);
  return size;
}

Lane::Line& Lane::line_of(const Key& key, uint32_t line) {
  Line& found = states_[key.spec.index].lines[line];
  if (!found.slot) found.slot = key.codec_of(side_.tier, direction_).open_slot(key.whole(0, side_.tier, direction_));
  return found;
}

void Lane::offer(uint32_t index, uint32_t part, uint32_t round, Bytes values, int priority, std::vector<Encoded>* out,
                 uint32_t line_index) {
  const Key& key = *side_.keys.find(index);
  Line& line = line_of(key, line_index);
  values = with_residual(states_[index], key, part, std::move(values));
  if (is_delta(key)) values = against_base(key, line, part, values);
  if (!gathers(key)) {
    encode(key, line, part, round, values, priority, out);
    return;
  }
  Waiting& group = line.groups[group_of(key, part)];
  if (group.values.empty()) {
    group.round = round;
    group.missing = group_size(key, part);
  }
  GX_CHECK(group.round == round, "parts of two rounds in one group");
  group.values.emplace(part, std::make_pair(std::move(values), priority));
  if (--group.missing != 0) return;
  const Waiting ready = std::move(group);
  group = Waiting();
  encode_group(key, line, ready, out);
}

void Lane::encode_group(const Key& key, Line& line, const Waiting& group, std::vector<Encoded>* out) {
  Codec& codec = key.codec_of(side_.tier, direction_);
  const size_t first = out->size();
  if (codec.scope() != CodecScope::part) {
    const Stopwatch watch(&side_.counters.encode_s, encode_seconds(key));
    const TraceSpan span(side_.trace, side_.event(TraceKind::encode, direction_, key.spec.index, 0, group.round));
    PartView whole = key.whole(group.round, side_.tier, direction_);
    whole.offset = key.parts[group.values.begin()->first].offset;
    const Bytes values = contiguous(group.values);
    whole.length = values.size() / size_of(sum_type(key.spec.dtype));
    if (Status status = codec.prepare(*line.slot, whole, values); !status.ok()) return side_.fail(status.message());
  }
  for (const auto& [part, entry] : group.values)
    if (!encode(key, line, part, group.round, entry.first, entry.second, out)) return;
  if (!classifies()) return;
  if (Status status = classify(key, states_[key.spec.index], out, first); !status.ok())
    side_.fail("key \"" + key.spec.name + "\": " + status.message());
}

// The parts of each server against each other: rounds close shard by shard.
Status Lane::classify(const Key& key, State& state, std::vector<Encoded>* out, size_t first) {
  std::map<uint32_t, std::vector<size_t>> shards;
  for (size_t i = first; i < out->size(); ++i) shards[side_.server_of(key, (*out)[i].part)].push_back(i);
  TierCounters& counters = side_.counters.of(side_.tier);
  for (const auto& [server, members] : shards) {
    std::vector<PartView> views;
    std::vector<double> scores;
    for (size_t i : members) {
      views.push_back(key.view((*out)[i].part, (*out)[i].round, side_.tier, direction_));
      scores.push_back(0);
      Codec& codec = key.codec_of(side_.tier, direction_);
      if (Status status = codec.score(views.back(), (*out)[i].bytes, &scores.back()); !status.ok()) return status;
      if (std::isfinite(scores.back())) counters.sent_mass += scores.back();
    }
    const std::vector<PartClass> classes = side_.policies.transport->classify(views, scores);
    for (size_t i = 0; i < members.size(); ++i) {
      Encoded& encoded = (*out)[members[i]];
      encoded.service = classes[i];
      ++counters.classed_parts;
      counters.droppable_parts += classes[i].is_droppable;
      if (!classes[i].is_coarse) continue;
      if (Status status = coarsen(key, state, &encoded); !status.ok()) return status;
    }
  }
  return {};
}

// In the transport's coarse codec, where that is smaller. What it loses goes into the next round.
Status Lane::coarsen(const Key& key, State& state, Encoded* encoded) {
  Codec* coarse = side_.policies.transport->coarse();
  if (coarse == nullptr || !coarse->takes(key.spec.dtype) || sum_type(key.spec.dtype) != DType::f32) return {};
  const PartView view = key.view(encoded->part, encoded->round, side_.tier, direction_);
  if (encoded->bytes.size() <= coarse->max_encoded_size(view)) return {};
  Bytes values, rounded, bytes;
  Status status = key.codec_of(side_.tier, direction_).decode(view, encoded->bytes, &values);
  const std::unique_ptr<Slot> slot = coarse->open_slot(view);
  if (status.ok()) status = coarse->encode(*slot, view, values, &bytes);
  if (status.ok()) status = coarse->decode(view, bytes, &rounded);
  if (!status.ok()) return status;
  float* const left = reinterpret_cast<float*>(residual_of(state, key, encoded->part).writable());
  for (uint64_t i = 0; i < view.length; ++i) left[i] += values.as<float>()[i] - rounded.as<float>()[i];
  encoded->bytes = std::move(bytes);
  encoded->codec = coarse->wire_id();
  return {};
}

double* Lane::encode_seconds(const Key& key) const {
  return &side_.counters.of(side_.tier).of_key(key.spec.index).encode_s[size_t(direction_)];
}

bool Lane::encode(const Key& key, Line& line, uint32_t part, uint32_t round, const Bytes& values, int priority,
                  std::vector<Encoded>* out) {
  const PartView view = key.view(part, round, side_.tier, direction_);
  Encoded encoded;
  encoded.codec = key.codec_of(side_.tier, direction_).wire_id();
  {
    const Stopwatch watch(&side_.counters.encode_s, encode_seconds(key));
    const TraceSpan span(side_.trace, side_.event(TraceKind::encode, direction_, key.spec.index, part, round));
    if (Status status = encode_part(key, line, view, values, &encoded); !status.ok()) {
      side_.fail("key \"" + key.spec.name + "\": " + status.message());
      return false;
    }
  }
  encoded.key = key.spec.index;
  encoded.part = part;
  encoded.round = round;
  encoded.rank = side_.policies.scheduler->rank(view, priority);
  if (side_.policies.scheduler->spreads_priorities()) encoded.priority = priority;
  out->push_back(std::move(encoded));
  return true;
}

// Values of a difference that has no base yet are whole, and become it.
Status Lane::encode_part(const Key& key, Line& line, const PartView& view, const Bytes& values, Encoded* encoded) {
  Codec& codec = key.codec_of(side_.tier, direction_);
  if (!is_delta(key)) return codec.encode(*line.slot, view, values, &encoded->bytes);
  Bytes& base = line.bases[view.part];
  if (line.is_new.erase(view.part) != 0) {
    encoded->codec = kRawWireId;
    const Bytes raw = to_raw(key.spec.dtype, base);
    encoded->bytes = Bytes::copy(raw.data(), raw.size());
    return {};
  }
  return codec.encode(*line.slot, view, values, &encoded->bytes);
}

Bytes Lane::against_base(const Key& key, Line& line, uint32_t part, const Bytes& values) const {
  Bytes& base = line.bases[part];
  if (base.empty()) {
    set_copy(key.spec.dtype, values, &base);
    line.is_new.insert(part);
  }
  const DType type = sum_type(key.spec.dtype);
  Bytes difference = Bytes::allocate(values.size());
  subtract(type, values.data(), base.data(), difference.writable(), key.parts[part].length);
  return difference;
}

void Lane::sent(const Encoded& encoded, uint32_t line_index) {
  const Key& key = *side_.keys.find(encoded.key);
  Codec& codec = key.codec_of(side_.tier, direction_);
  if (!is_delta(key) || encoded.codec != codec.wire_id()) return;
  const PartView view = key.view(encoded.part, encoded.round, side_.tier, direction_);
  Bytes& base = line_of(key, line_index).bases[encoded.part];
  if (Status status = codec.accumulate(view, encoded.bytes, base.writable()); !status.ok())
    side_.fail("key \"" + key.spec.name + "\": " + status.message());
}

const Bytes& Lane::base(uint32_t key, uint32_t part, uint32_t line) { return states_[key].lines[line].bases[part]; }

void Lane::set_base(uint32_t key, uint32_t part, uint32_t line, const Bytes& values) {
  set_copy(side_.keys.find(key)->spec.dtype, values, &states_[key].lines[line].bases[part]);
}

Bytes Lane::with_residual(State& state, const Key& key, uint32_t part, Bytes values) {
  auto found = state.residuals.find(part);
  if (found == state.residuals.end()) return values;
  Bytes sum = std::move(found->second);
  state.residuals.erase(found);
  add(sum_type(key.spec.dtype), sum.writable(), values.data(), key.parts[part].length);
  return sum;
}

Bytes& Lane::residual_of(State& state, const Key& key, uint32_t part) {
  Bytes& residual = state.residuals[part];
  if (residual.empty()) residual = zeros(key.sum_bytes(part));
  return residual;
}

void Lane::give_back(const Frame& lost) {
  const Key& key = *side_.keys.find(lost.key);
  Codec& own = key.codec_of(side_.tier, direction_);
  Codec* const coarse = side_.policies.transport->coarse();
  Codec& codec = coarse != nullptr && lost.codec == coarse->wire_id() ? *coarse : own;
  const PartView view = key.view(lost.part, lost.round, side_.tier, direction_);
  double mass = 0;
  Status status = codec.score(view, lost.body, &mass);
  if (status.ok() && std::isfinite(mass)) side_.counters.of(side_.tier).returned_mass += mass;
  if (status.ok() && codec.keeps_residual())
    status = codec.give_back(*line_of(key, 0).slot, view, lost.body);
  else if (status.ok())
    status = codec.accumulate(view, lost.body, residual_of(states_[lost.key], key, lost.part).writable());
  if (!status.ok()) side_.fail("key \"" + key.spec.name + "\": " + status.message());
}

Bytes Lane::residual(uint32_t key, uint32_t part) const {
  const State* state = states_.find(key);
  if (state == nullptr) return {};
  auto found = state->residuals.find(part);
  return found == state->residuals.end() ? Bytes() : found->second;
}

Slot* Lane::slot(uint32_t key) {
  const State* state = states_.find(key);
  return state == nullptr || state->lines.empty() ? nullptr : state->lines.begin()->second.slot.get();
}

}  // namespace geomx
