// A set of numbers as ranges: which packets came, which bytes of a message.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>

namespace geomx {

class Ranges {
 public:
  // Adds first..end-1; returns how many of them are new.
  uint64_t add(uint64_t first, uint64_t end) {
    if (first >= end) return 0;
    auto next = ends_.upper_bound(first);
    if (next != ends_.begin() && std::prev(next)->second >= first) --next;
    uint64_t before = 0;
    while (next != ends_.end() && next->first <= end) {
      before += next->second - next->first;
      first = std::min(first, next->first);
      end = std::max(end, next->second);
      next = ends_.erase(next);
    }
    ends_.emplace(first, end);
    const uint64_t added = end - first - before;
    count_ += added;
    return added;
  }
  bool contains(uint64_t number) const { return covers(number, number + 1); }
  bool covers(uint64_t first, uint64_t end) const {
    if (first >= end) return true;
    auto next = ends_.upper_bound(first);
    return next != ends_.begin() && std::prev(next)->second >= end;
  }
  // Only the ranges of the largest numbers stay; what is below them counts as there.
  void forget_below(size_t max_ranges) {
    while (ends_.size() > max_ranges) {
      const auto lowest = ends_.begin();
      const auto next = std::next(lowest);
      const uint64_t first = lowest->first, end = next->second;
      count_ += next->first - lowest->second;
      ends_.erase(lowest);
      ends_.erase(next);
      ends_.emplace(first, end);
    }
  }
  uint64_t count() const { return count_; }
  uint64_t end() const { return ends_.empty() ? 0 : ends_.rbegin()->second; }  // behind the largest
  const std::map<uint64_t, uint64_t>& all() const { return ends_; }            // first -> end

 private:
  std::map<uint64_t, uint64_t> ends_;
  uint64_t count_ = 0;
};

}  // namespace geomx
