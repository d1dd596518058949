// The keys of one node: what the directory decided, and the codec of each tier and direction once they are sealed.
#pragma once
#include <deque>
#include <unordered_map>

#include "key_spec.h"

namespace geomx {

struct Key {
  KeySpec spec;
  std::vector<PartSpec> parts;
  std::shared_ptr<Codec> codec[2][2];  // [tier][direction]; null until they are sealed
  Content content[2][2] = {};          // of what each of them is given

  Codec& codec_of(Tier tier, Direction direction) const { return *codec[size_t(tier)][size_t(direction)]; }
  bool has_codec(Tier tier, Direction direction) const { return codec[size_t(tier)][size_t(direction)] != nullptr; }
  // What comes down is the difference to what its receiver has (lane.h).
  bool is_delta(Tier tier) const { return content[size_t(tier)][size_t(Direction::down)] == Content::delta; }
  PartView view(uint32_t part, uint32_t round, Tier tier, Direction direction) const {
    PartView v;
    v.key = spec.index;
    v.part = part;
    v.num_parts = uint32_t(parts.size());
    v.round = round;
    v.offset = parts[part].offset;
    v.length = parts[part].length;
    v.tensor_length = spec.length();
    v.dtype = spec.dtype;
    v.tier = tier;
    v.direction = direction;
    v.content = content[size_t(tier)][size_t(direction)];
    return v;
  }
  PartView whole(uint32_t round, Tier tier, Direction direction) const {
    PartView v = view(0, round, tier, direction);
    v.offset = 0;
    v.length = v.tensor_length;
    return v;
  }
  size_t sum_bytes(uint32_t part) const { return size_t(parts[part].length) * size_of(sum_type(spec.dtype)); }
};

class KeyTable {
 public:
  // Keys arrive in any order of their index; a Key's address stays.
  Key& add(KeySpec spec) {
    while (keys_.size() <= spec.index) keys_.emplace_back();
    std::unique_ptr<Key>& key = keys_[spec.index];
    if (!key) key = std::make_unique<Key>();
    key->parts = spec.parts();
    index_of_[spec.id] = spec.index;
    key->spec = std::move(spec);
    return *key;
  }
  Key* find(uint32_t index) { return index < keys_.size() ? keys_[index].get() : nullptr; }
  const Key* find(uint32_t index) const { return index < keys_.size() ? keys_[index].get() : nullptr; }
  Key* find_id(uint64_t id) {
    auto found = index_of_.find(id);
    return found == index_of_.end() ? nullptr : find(found->second);
  }
  size_t size() const { return index_of_.size(); }
  template <typename Visit>
  void for_each(Visit visit) {
    for (auto& key : keys_)
      if (key) visit(*key);
  }

 private:
  std::deque<std::unique_ptr<Key>> keys_;
  std::unordered_map<uint64_t, uint32_t> index_of_;
};

}  // namespace geomx
