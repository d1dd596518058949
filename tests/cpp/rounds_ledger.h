// What a cluster of test_rounds.cc counts while it runs: what was pushed, applied and delivered of each part, and what
// went against the invariants at once. Gradients are integers, so every sum is exact.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/aggregator.h"
#include "core/buffer.h"
#include "core/wire.h"

namespace geomx::rounds {

constexpr uint32_t kStaleness = 2;

using Sum = std::vector<double>;
void add_to(Sum& sum, const Bytes& values);

class Ledger {
 public:
  void push(uint32_t key, uint32_t part, const Bytes& values) { add_to(pushed_[{key, part}], values); }
  void apply(uint32_t key, uint32_t part, const Bytes& values) { add_to(applied_[{key, part}], values); }
  // `whose`: all whose values should be the same.
  void deliver(const Frame& frame, const std::string& whose, const Bytes& values);
  // Mixed sync: a party's round closes, of `parties`. Nobody who trains may be more than the bound behind it.
  void close(const Aggregator& aggregator, uint32_t key, uint32_t part, uint32_t party, uint32_t round,
             uint32_t parties);
  void fail(const std::string& why) { failures_.push_back(why); }

  std::vector<std::string>& failures() { return failures_; }
  Sum pushed(uint32_t key, uint32_t part, uint64_t length) const { return sum(pushed_, key, part, length); }
  Sum applied(uint32_t key, uint32_t part, uint64_t length) const { return sum(applied_, key, part, length); }
  // All rounds' together.
  Sum delivered(uint32_t key, uint32_t part, uint64_t length) const;
  // The newest round's, by whose.
  std::map<std::string, Bytes> newest(uint32_t key, uint32_t part) const;

 private:
  using Sums = std::map<std::pair<uint32_t, uint32_t>, Sum>;
  static Sum sum(const Sums& sums, uint32_t key, uint32_t part, uint64_t length);

  Sums pushed_, applied_;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<uint32_t>> closed_;  // by party, its newest round
  std::map<std::tuple<uint32_t, uint32_t, uint32_t, std::string>, Bytes> delivered_;
  std::vector<std::string> failures_;
};

}  // namespace geomx::rounds
