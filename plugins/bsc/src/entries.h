// The bytes of a sparse part: which positions it carries, and their values in 32, 16 or 8 bits. Writing and reading
// know nothing of slots or selection; reading trusts nothing.
//
//   u8       width of a value: 0 float32, 1 half, 2 eight bits; + 16: all positions are there, so none are written
//   varint   count of entries, little-endian base 128; the rest is only there if it isn't 0
//   u8       low: how many bits of a gap are written as they are (not with + 16)
//   values   float32: 4 bytes each. half: an i8 exponent e, then IEEE halves; a value is half * 2^e.
//            eight bits: for each 128 values a bfloat16 scale, then a signed byte q each; a value is q * scale.
//   low bits of each gap, packed from the lowest bit on; the last byte is filled with zeros
//   high bits of each gap in unary: so many zeros, then a one; the last byte is filled with zeros
//
// A gap is how many positions lie between an entry and the one before it (Rice's code, its two halves apart so that
// both can be read fast).
#pragma once
#include <geomx/plugin.h>

#include <cstdint>
#include <vector>

namespace bsc {

enum class Width : uint8_t { single = 0, half = 1, byte = 2 };
constexpr uint64_t values_per_scale = 128;

// Positions within a part, ascending, and their values.
struct Entries {
  std::vector<uint32_t> positions;
  std::vector<float> values;
  void resize(size_t count) {
    positions.resize(count);
    values.resize(count);
  }
  size_t size() const { return positions.size(); }
};

// Room that is used again from call to call.
struct Scratch {
  std::vector<uint8_t> streams;
  std::vector<uint32_t> gaps;
};

// The most bytes that entries of a part of this length can take, whatever their width.
uint64_t max_size(uint64_t length);

// Writes `count` entries; `sent` becomes what a reader will make of each value. Returns the bytes written: never more
// than max_size(length).
uint64_t write(const uint32_t* positions, const float* values, uint64_t count, uint64_t length, Width width,
               const gx_kernels& kernels, Scratch& scratch, float* sent, uint8_t* out);

// Null, or why the bytes can't be right. Writes nothing but `entries` and `scratch`. Where the values will be added to
// elements of `target_width` bytes at `target`, that memory is fetched meanwhile: waiting for it is most of the work.
const char* read(gx_bytes in, uint64_t length, const gx_kernels& kernels, Scratch& scratch, Entries& entries,
                 const void* target = nullptr, uint64_t target_width = 0);

}  // namespace bsc
