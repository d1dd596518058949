// See rounds_ledger.h.
#include "rounds_ledger.h"

namespace geomx::rounds {

void add_to(Sum& sum, const Bytes& values) {
  sum.resize(values.size() / 4);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += double(values.as<float>()[i]);
}

void Ledger::deliver(const Frame& frame, const std::string& whose, const Bytes& values) {
  const auto [seen, is_first] = delivered_.emplace(std::make_tuple(frame.key, frame.part, frame.round, whose), values);
  if (!is_first && seen->second.text() != values.text()) fail("workers got different bytes");
}

void Ledger::close(const Aggregator& aggregator, uint32_t key, uint32_t part, uint32_t party, uint32_t round,
                   uint32_t parties) {
  std::vector<uint32_t>& closed = closed_[{key, part}];
  closed.resize(parties);
  closed[party] = round;
  for (uint32_t other = 0; other < closed.size(); ++other)
    if (!aggregator.left().contains(other) && round > closed[other] + kStaleness)
      fail("a party is further ahead than the bound");
}

Sum Ledger::sum(const Sums& sums, uint32_t key, uint32_t part, uint64_t length) {
  const auto found = sums.find({key, part});
  Sum out = found == sums.end() ? Sum() : found->second;
  out.resize(length);
  return out;
}

Sum Ledger::delivered(uint32_t key, uint32_t part, uint64_t length) const {
  Sum out(length);
  for (const auto& [where, values] : delivered_)
    if (std::get<0>(where) == key && std::get<1>(where) == part && !values.empty()) add_to(out, values);
  return out;
}

std::map<std::string, Bytes> Ledger::newest(uint32_t key, uint32_t part) const {
  std::map<std::string, Bytes> out;
  for (const auto& [where, values] : delivered_)
    if (std::get<0>(where) == key && std::get<1>(where) == part) out[std::get<3>(where)] = values;  // rounds ascend
  return out;
}

}  // namespace geomx::rounds
