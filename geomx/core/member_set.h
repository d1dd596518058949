// A set of contributors of one domain, by rank. Small sets (ranks below 64) need no memory of their own.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace geomx {

class MemberSet {
 public:
  MemberSet() = default;
  static MemberSet of(uint32_t rank) {
    MemberSet set;
    set.insert(rank);
    return set;
  }
  static MemberSet first(uint32_t count) {
    MemberSet set;
    for (uint32_t rank = 0; rank < count; ++rank) set.insert(rank);
    return set;
  }
  void insert(uint32_t rank) { word(rank / 64) |= uint64_t(1) << (rank % 64); }
  void erase(uint32_t rank) {
    if (rank / 64 <= high_.size()) word(rank / 64) &= ~(uint64_t(1) << (rank % 64));
  }
  bool contains(uint32_t rank) const { return word_at(rank / 64) >> (rank % 64) & 1; }
  bool contains(const MemberSet& other) const { return (other - *this).empty(); }
  bool intersects(const MemberSet& other) const {
    for (size_t i = 0; i < num_words(); ++i)
      if (word_at(i) & other.word_at(i)) return true;
    return false;
  }
  bool empty() const {
    for (size_t i = 0; i < num_words(); ++i)
      if (word_at(i)) return false;
    return true;
  }
  uint32_t count() const {
    uint32_t total = 0;
    for (size_t i = 0; i < num_words(); ++i) total += uint32_t(__builtin_popcountll(word_at(i)));
    return total;
  }
  MemberSet operator|(const MemberSet& other) const {
    return combine(other, [](uint64_t a, uint64_t b) { return a | b; });
  }
  MemberSet operator-(const MemberSet& other) const {
    return combine(other, [](uint64_t a, uint64_t b) { return a & ~b; });
  }
  bool operator==(const MemberSet& other) const { return contains(other) && other.contains(*this); }
  bool operator!=(const MemberSet& other) const { return !(*this == other); }

  template <typename Visit>
  void for_each(Visit visit) const {
    for (size_t i = 0; i < num_words(); ++i)
      for (uint64_t bits = word_at(i); bits; bits &= bits - 1) visit(uint32_t(i * 64 + size_t(__builtin_ctzll(bits))));
  }
  std::vector<uint32_t> ranks() const {
    std::vector<uint32_t> out;
    for_each([&](uint32_t rank) { out.push_back(rank); });
    return out;
  }
  size_t num_words() const { return 1 + high_.size(); }
  uint64_t word_at(size_t i) const { return i == 0 ? low_ : i <= high_.size() ? high_[i - 1] : 0; }
  uint64_t& word(size_t i) {
    if (i == 0) return low_;
    if (i > high_.size()) high_.resize(i);
    return high_[i - 1];
  }

 private:
  template <typename Op>
  MemberSet combine(const MemberSet& other, Op op) const {
    MemberSet out;
    for (size_t i = 0; i < std::max(num_words(), other.num_words()); ++i)
      out.word(i) = op(word_at(i), other.word_at(i));
    return out;
  }
  uint64_t low_ = 0;
  std::vector<uint64_t> high_;
};

}  // namespace geomx
