// What is decided once for a key and only executed afterwards: shape, type, where its shards are, how they are cut
// into parts. Pure data; the same on every node.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "codec.h"
#include "wire.h"

namespace geomx {

struct Shard {
  uint32_t server = 0;
  uint64_t offset = 0, length = 0;
  bool operator==(const Shard& o) const { return server == o.server && offset == o.offset && length == o.length; }
};

// A fixed slice of a shard: what is encoded, ranked, sent, merged and answered.
struct PartSpec {
  uint32_t server = 0;
  uint64_t offset = 0, length = 0;  // elements of the flattened tensor
};

struct KeySpec {
  uint32_t index = 0;  // in this run; given by the directory
  uint64_t id = 0;     // hash of the name
  std::string name;
  std::vector<uint64_t> shape;
  DType dtype = DType::f32;
  std::vector<Shard> shards;
  uint64_t part_length = 0;  // elements; 0: shards are not cut
  bool has_initial = true;   // false: declared by its first push, value zero

  uint64_t length() const;
  std::vector<PartSpec> parts() const;
  // Same name, shape and type: what must agree between the nodes that declare it.
  bool same_tensor(const KeySpec& other) const;
  std::string tensor_text() const;  // "float32 (10, 3)"
  // Shards cover the tensor once, in order, on servers that exist.
  Status check(uint32_t num_servers) const;

  void write(Writer& out) const;
  static bool read(Reader& in, KeySpec* spec);
};

uint64_t key_id(const std::string& name);  // FNV-1a, 64 bits: the same on every node whatever the order

}  // namespace geomx
