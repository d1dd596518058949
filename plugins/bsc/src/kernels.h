// The two loops over whole tensors, vectorised with Highway for the processor at hand. Magnitudes are compared as the
// bits of a float without its sign, whose order is the same; a border is such bits, and above 0.
#pragma once
#include <cstdint>

namespace bsc {

constexpr uint64_t room_behind = 64;  // elements that a sink needs behind its capacity: a vector is always stored whole
constexpr int32_t no_border = 0x7f800000;  // nothing finite reaches it

// Where candidates go. `count` goes on beyond the capacity, so that it is noticed.
struct Sink {
  uint32_t* positions;
  float* values;
  uint64_t capacity, count, num_infinite;
};

// u = factor * u + g; v = v + u; u may be null: v = v + g. What of v reaches the border is collected. Values of g that
// aren't finite count as 0 and are counted; sums that leave the range stay at its end.
void update(float* u, float* v, const float* g, uint64_t n, float factor, int32_t border, Sink* to);
// Collects what of v reaches the border; v[0] is at position `first`.
void scan(const float* v, uint64_t n, uint64_t first, int32_t border, Sink* to);

}  // namespace bsc
