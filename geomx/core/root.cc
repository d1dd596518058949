// Root: see root.h.
#include "root.h"

#include "stopwatch.h"
#include "sums.h"

namespace geomx {

void Root::seal(std::unique_ptr<Updater> updater) {
  updater_ = std::move(updater);
  keeps_weights_ = updater_ != nullptr;
  if (!keeps_weights_) weights_.clear();
}

void Root::offer(uint32_t index, uint32_t part, uint32_t line, uint32_t round, Bytes sum, const MemberSet&, int) {
  if (!updater_) return aggregator_->finish(index, part, line, std::move(sum));
  const Key& key = *side_.keys.find(index);
  if (weights_[{index, part}].size() == sum.size()) return step(key, part, {line, round, std::move(sum)});
  if (!key.spec.has_initial)
    return side_.fail("key \"" + key.spec.name +
                      "\" has no initial value, which a server optimizer needs; init it first");
  early_[{index, part}].push_back({line, round, std::move(sum)});
}

void Root::step(const Key& key, uint32_t part, const Closed& closed) {
  const uint32_t index = key.spec.index;
  Bytes& weights = weights_[{index, part}];
  {
    const Stopwatch watch(&side_.counters.update_s);
    const TraceSpan span(side_.trace, side_.event(TraceKind::update, Direction::up, index, part, closed.round));
    Bytes next = side_.link.allocate(member(0), weights.size());  // the old ones may still be on their way to members
    if (!next.empty()) std::memcpy(next.writable(), weights.data(), weights.size());
    const PartView view = key.view(part, closed.round, side_.tier, Direction::up);
    const Status status = updater_->step(view, closed.line, closed.sum.data(), next.writable());
    if (!status.ok()) return side_.fail("key \"" + key.spec.name + "\": " + status.message());
    weights = std::move(next);
  }
  aggregator_->finish(index, part, closed.line, weights);
}

// The sum is what members get, unless an updater makes something else of it.
Bytes Root::allocate(uint32_t, uint32_t, size_t size) {
  return updater_ ? Bytes::allocate(size) : side_.link.allocate(member(0), size);
}

// Keys that nobody initialised begin at zero; for others the authority's value will come.
void Root::want(uint32_t index, uint32_t part) {
  const Key& key = *side_.keys.find(index);
  if (key.spec.has_initial) return;
  aggregator_->set_value(index, part, 0, zeros(size_t(key.parts[part].length) * size_of(key.spec.dtype)));
}

void Root::gave(uint32_t index, uint32_t part, uint32_t line, const void* values) {
  auto weights = weights_.find({index, part});
  if (!updater_ || weights == weights_.end()) return;
  updater_->gave(side_.keys.find(index)->view(part, 0, side_.tier, Direction::up), line,
                 values != nullptr ? values : weights->second.data());
}

void Root::initial(uint32_t index, uint32_t part, Bytes raw) {
  const Key& key = *side_.keys.find(index);
  if (raw.size() != size_t(key.parts[part].length) * size_of(key.spec.dtype)) {
    ++side_.counters.of(side_.tier).refused_frames;
    return;
  }
  if (keeps_weights_) weights_[{index, part}] = from_raw(key.spec.dtype, raw);
  aggregator_->set_value(index, part, 0, std::move(raw));
  const auto early = early_.find({index, part});
  if (early == early_.end()) return;
  const std::vector<Closed> rounds = std::move(early->second);
  early_.erase(early);
  for (const Closed& closed : rounds) step(key, part, closed);
}

}  // namespace geomx
