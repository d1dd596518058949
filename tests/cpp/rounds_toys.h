// What the clusters of test_rounds.cc run instead of plugins: simple, decided by draws from a seed alone, and as
// awkward as the core's seams allow.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/codec.h"
#include "core/policies.h"
#include "core/reduce.h"
#include "core/sums.h"
#include "core/updater.h"
#include "core/wire.h"

namespace geomx::rounds {

// A draw that these numbers decide.
inline uint64_t mix(std::initializer_list<uint64_t> values, uint64_t h = 0x9e3779b97f4a7c15u) {
  for (uint64_t v : values) h = (h ^ v) * 0xff51afd7ed558ccdu, h ^= h >> 29;
  return h;
}

using Entry = std::pair<uint32_t, float>;

// Encoded parts lie at any address.
inline std::vector<Entry> entries(const Bytes& encoded) {
  std::vector<Entry> out(encoded.size() / sizeof(Entry));
  if (!out.empty()) std::memcpy(static_cast<void*>(out.data()), encoded.data(), out.size() * sizeof(Entry));
  return out;
}

// The largest quarter of what has gathered goes out, the rest stays: (index, value) pairs. Of differences nothing
// stays.
class SparseCodec : public Codec {
 public:
  struct Residual : Slot {
    std::vector<float> values;
    std::vector<bool> chosen;
  };
  explicit SparseCodec(CodecScope scope, bool keeps = true) : scope_(scope), keeps_(keeps) {}
  uint32_t wire_id() const override { return fourcc('T', 'O', 'P', 'K'); }
  CodecScope scope() const override { return scope_; }
  bool can_merge() const override { return true; }
  bool keeps_residual() const override { return true; }
  std::unique_ptr<Slot> open_slot(const PartView& whole) override {
    auto slot = std::make_unique<Residual>();
    slot->values.resize(whole.tensor_length);
    slot->chosen.resize(whole.tensor_length);
    return slot;
  }
  Status prepare(Slot& slot, const PartView& whole, const Bytes& values) override {
    auto& r = static_cast<Residual&>(slot);
    std::vector<uint64_t> order;
    for (uint64_t i = 0; i < whole.length; ++i) {
      float& value = r.values[whole.offset + i];
      value = (keeps_ ? value : 0) + values.as<float>()[i];
      order.push_back(whole.offset + i);
      r.chosen[whole.offset + i] = false;
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](uint64_t a, uint64_t b) { return std::abs(r.values[a]) > std::abs(r.values[b]); });
    for (size_t i = 0; i < (order.size() + 3) / 4; ++i) r.chosen[order[i]] = true;
    return {};
  }
  Status encode(Slot& slot, const PartView& view, const Bytes&, Bytes* out) override {
    auto& r = static_cast<Residual&>(slot);
    std::vector<Entry> pairs;
    for (uint64_t i = view.offset; i < view.offset + view.length; ++i) {
      if (!r.chosen[i]) continue;
      pairs.push_back({uint32_t(i - view.offset), r.values[i]});
      r.values[i] = 0;
    }
    *out = Bytes::copy(pairs.data(), pairs.size() * 8);
    return {};
  }
  Status decode(const PartView& view, const Bytes& in, Bytes* values) override {
    *values = zeros(view.length * 4);
    return accumulate(view, in, values->writable());
  }
  Status accumulate(const PartView& view, const Bytes& in, void* sum) override {
    for (const auto& [index, value] : entries(in)) {
      if (index >= view.length) return Status::error("index out of range");
      static_cast<float*>(sum)[index] += value;
    }
    return {};
  }
  Status give_back(Slot& slot, const PartView& view, const Bytes& lost) override {
    return accumulate(view, lost, static_cast<Residual&>(slot).values.data() + view.offset);
  }
  Status merge(const PartView&, const std::vector<Bytes>& parts, Bytes* merged) override {
    std::map<uint32_t, float> sums;
    for (const Bytes& part : parts)
      for (const auto& [index, value] : entries(part)) sums[index] += value;
    const std::vector<Entry> pairs(sums.begin(), sums.end());
    *merged = Bytes::copy(pairs.data(), pairs.size() * 8);
    return {};
  }
  Status score(const PartView&, const Bytes& in, double* contribution) override {
    *contribution = 0;
    for (const auto& [index, value] : entries(in)) *contribution += std::abs(value);
    return {};
  }
  Status save_slot(const Slot&, Bytes*) const override { return {}; }
  Status load_slot(Slot&, const Bytes&) override { return {}; }

 private:
  CodecScope scope_;
  bool keeps_;
};

// Weights are the sum of all that was ever applied.
class Adder : public Updater {
 public:
  Status step(const PartView& view, uint32_t, const void* sum, void* weights) override {
    add_f32(static_cast<float*>(weights), sum, view.length);
    return {};
  }
};

class RandomRank : public SchedulerPolicy {
 public:
  int64_t rank(const PartView& v, int) const override { return int64_t(mix({v.key, v.part, v.round}) % 5); }
  CreditRule credit() const override { return {1, false}; }  // one message, whatever its size
};

class LossyHalf : public TransportPolicy {
 public:
  bool is_lossy() const override { return true; }
  std::vector<PartClass> classify(const std::vector<PartView>& parts, const std::vector<double>& scores) override {
    std::vector<double> sorted = scores;
    std::sort(sorted.begin(), sorted.end());
    std::vector<PartClass> out(parts.size());
    for (size_t i = 0; i < parts.size(); ++i)
      if (scores[i] <= sorted[parts.size() / 2]) out[i] = {1, true};
    return out;
  }
  uint64_t deadline_us() const override { return 3000; }
};

// A tree drawn anew for each part and round: towards members of a higher draw, or the root.
class RandomTree : public OverlayPolicy {
 public:
  RandomTree(uint64_t seed, uint32_t members) : seed_(seed), members_(members) {}
  Hop up(const PartView& v, NodeId self, NodeId root, const Held& held, uint64_t now_us) override {
    const uint64_t hold_us = mix({seed_, v.key, v.part, v.round, self.rank, 1}) % 4000;
    if (now_us < held.since_us + hold_us && held.have.count() < members_) return {true, held.since_us + hold_us, {}};
    std::vector<uint32_t> higher;
    for (uint32_t m = 0; m < members_; ++m)
      if (draw(v, m) > draw(v, self.rank)) higher.push_back(m);
    const uint64_t pick = mix({seed_, v.key, v.part, v.round, self.rank, 2}) % (higher.size() + 1);
    return {false, 0, pick == higher.size() ? root : member(higher[pick])};
  }
  // Trees and chains; the central party is the server itself and passes nothing on.
  Route down(const PartView& v, const MemberSet& owed, uint64_t) override {
    const std::vector<uint32_t> ranks = owed.ranks();
    Route route(ranks.size());
    for (size_t i = 0; i < ranks.size(); ++i) route[i] = {ranks[ranks.size() - 1 - i], 0};
    for (size_t i = 0; i < route.size(); ++i) {
      if (route[i].rank >= members_) continue;
      size_t end = route.size();  // of the tree that it is in
      for (size_t j = 0; j < i; ++j)
        if (j + route[j].below >= i) end = j + 1 + route[j].below;
      route[i].below = uint32_t(draw(v, route[i].rank) % (end - i));
    }
    return route;
  }
  uint64_t bypass_us() const override { return 6000; }

 private:
  uint64_t draw(const PartView& v, uint32_t m) const { return mix({seed_, v.key, v.part, v.round, m, 3}); }
  uint64_t seed_;
  uint32_t members_;
};

}  // namespace geomx::rounds
