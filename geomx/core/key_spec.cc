// KeySpec: arithmetic of shards and parts, and its form on the wire.
#include "key_spec.h"

#include <algorithm>

namespace geomx {
namespace {

constexpr uint64_t kMaxDims = 32;
constexpr uint64_t kMaxShards = 1u << 16;
constexpr uint64_t kMaxLength = uint64_t(1) << 44;  // elements
constexpr uint64_t kMaxParts = uint64_t(1) << 22;
constexpr uint32_t kMaxKeys = 1u << 24;

}  // namespace

uint64_t KeySpec::length() const {
  uint64_t total = 1;
  for (uint64_t dim : shape) total *= dim;
  return total;
}

std::vector<PartSpec> KeySpec::parts() const {
  std::vector<PartSpec> out;
  for (const Shard& shard : shards) {
    const uint64_t step = part_length == 0 ? std::max<uint64_t>(shard.length, 1) : part_length;
    uint64_t done = 0;
    do {  // an empty tensor has one empty part, so that its rounds complete like any other's
      const uint64_t length = std::min(step, shard.length - done);
      out.push_back({shard.server, shard.offset + done, length});
      done += length;
    } while (done < shard.length);
  }
  return out;
}

bool KeySpec::same_tensor(const KeySpec& other) const {
  return name == other.name && shape == other.shape && dtype == other.dtype;
}

std::string KeySpec::tensor_text() const {
  std::string text = std::string(name_of(dtype)) + " (";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

Status KeySpec::check(uint32_t num_servers) const {
  uint64_t next = 0;
  for (const Shard& shard : shards) {
    if (shard.server >= num_servers)
      return Status::error("key \"" + name + "\": its placement names server " + std::to_string(shard.server) +
                           ", but there are " + std::to_string(num_servers));
    if (shard.offset != next)
      return Status::error("key \"" + name + "\": expected a shard from element " + std::to_string(next) +
                           " but got one from " + std::to_string(shard.offset));
    next += shard.length;
  }
  if (shards.empty() || next != length())
    return Status::error("key \"" + name + "\": its shards cover " + std::to_string(next) + " of " +
                         std::to_string(length()) + " elements");
  return {};
}

void KeySpec::write(Writer& out) const {
  out.varint(index).u64(id).text(name).u8(uint8_t(dtype)).u8(has_initial).varint(part_length).varint(shape.size());
  for (uint64_t dim : shape) out.varint(dim);
  out.varint(shards.size());
  for (const Shard& shard : shards) out.varint(shard.server).varint(shard.offset).varint(shard.length);
}

bool KeySpec::read(Reader& in, KeySpec* spec) {
  spec->index = in.varint32();
  spec->id = in.u64();
  spec->name = in.text(4096);
  const uint8_t dtype = in.u8();
  spec->dtype = DType(dtype);
  spec->has_initial = in.u8() != 0;
  spec->part_length = in.varint();
  const uint64_t dims = in.varint();
  if (!in.ok() || dims > kMaxDims || dtype > uint8_t(DType::u8)) return false;
  uint64_t length = 1;
  for (uint64_t i = 0; i < dims; ++i) {
    spec->shape.push_back(in.varint());
    if (spec->shape.back() > kMaxLength) return false;
    length = spec->shape.back() == 0 ? 0 : length;
    if (length > kMaxLength / std::max<uint64_t>(spec->shape.back(), 1)) return false;
    length *= spec->shape.back();
  }
  const uint64_t num_shards = in.varint();
  if (!in.ok() || num_shards > kMaxShards) return false;
  uint64_t num_parts = 0;
  for (uint64_t i = 0; i < num_shards; ++i) {
    Shard shard;
    shard.server = in.varint32();
    shard.offset = in.varint();
    shard.length = in.varint();
    if (!in.ok() || shard.offset > kMaxLength || shard.length > kMaxLength) return false;
    num_parts += spec->part_length == 0 ? 1 : shard.length / spec->part_length + 1;
    if (num_parts > kMaxParts) return false;
    spec->shards.push_back(shard);
  }
  return in.ok() && spec->index < kMaxKeys;
}

uint64_t key_id(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char c : name) hash = (hash ^ c) * 0x100000001b3u;
  return hash;
}

}  // namespace geomx
