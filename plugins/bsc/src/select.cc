// Selection: see select.h. One pass updates the residual and collects what reaches a guessed border, which a small
// sample of the new residual gives; the exact border is then found among these few. A guess that was too high, or far
// too low, costs more passes and changes nothing else.
#include "select.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "kernels.h"

namespace bsc {
namespace {

constexpr uint32_t no_sign = 0x7fffffff;
constexpr uint64_t line = 16;  // floats of a sample that lie together
constexpr uint64_t max_lines = 4096;
constexpr uint64_t least_to_sample = 16384;
constexpr uint64_t block = 4096;

uint32_t magnitude(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits & no_sign;
}

// Of all that has exactly the border's magnitude, so many are taken.
struct Border {
  uint32_t bits;
  uint64_t num_taken, num_equal;
};

// The magnitude of the k-th largest, digit by digit: 11, 10 and 10 bits.
Border find_border(const float* values, uint64_t n, uint64_t k) {
  uint64_t above = 0;
  uint32_t prefix = 0;
  uint64_t equal = n;
  for (const uint32_t shift : {20u, 10u, 0u}) {
    const uint32_t width = shift == 20 ? 11 : 10, digits = (1u << width) - 1;
    std::vector<uint64_t> counts(size_t(digits) + 1);
    for (uint64_t i = 0; i < n; ++i) {
      const uint32_t bits = magnitude(values[i]);
      const bool is_inside = shift == 20 || bits >> (shift + width) == prefix;
      counts[bits >> shift & digits] += is_inside;
    }
    uint32_t digit = digits;
    while (above + counts[digit] < k) above += counts[digit--];
    prefix = prefix << width | digit;
    equal = counts[digit];
  }
  if (prefix == 0) return {1, 0, 0};  // fewer than k aren't 0: all of those
  return {prefix, k - above, equal};
}

// Selection sampling (Knuth, algorithm S): each of `equal` is taken with the same probability, exactly `taken` are.
class Lot {
 public:
  Lot(const Border& border, Random& random)
      : random_(random),
        bits_(border.bits),
        taken_(border.num_taken),
        equal_(border.num_equal),
        draws_(border.num_taken != border.num_equal) {}
  bool takes(float value) {
    const uint32_t bits = magnitude(value);
    if (bits != bits_ || !draws_) return bits >= bits_;
    if (random_.below(equal_--) >= taken_) return false;
    --taken_;
    return true;
  }

 private:
  Random& random_;
  uint32_t bits_;
  uint64_t taken_, equal_;
  bool draws_;
};

void filter(const uint32_t* positions, const float* values, uint64_t count, Lot& lot, Chosen<float>& chosen,
            uint64_t* filled) {
  for (uint64_t i = 0; i < count; ++i) {
    chosen.positions[*filled] = positions[i];
    chosen.values[*filled] = values[i];
    *filled += lot.takes(values[i]);
  }
}

// A border that a little more than k elements reach, if the sample tells the truth.
int32_t guess_border(const State<float>& state, const float* gradient, float factor, uint64_t k, Random& random,
                     uint64_t* expected) {
  const uint64_t n = state.length;
  if (n < least_to_sample || k > n / 4) return no_border;
  const uint64_t lines = std::min(max_lines, n / line / 4), size = lines * line;
  std::vector<uint32_t> sample;
  sample.reserve(size);
  for (uint64_t i = 0; i < lines; ++i) {
    const uint64_t start = random.below(n / line) * line;
    for (uint64_t j = start; j < start + line; ++j) {
      const float u = state.momentum != nullptr ? factor * state.momentum[j] : 0.0f;
      const uint32_t bits = magnitude(state.residual[j] + u + gradient[j]);
      sample.push_back(bits < uint32_t(no_border) ? bits : 0);
    }
  }
  const double share = double(size) * double(k) / double(n);
  const uint64_t rank = uint64_t(share * 1.1 + 4 * std::sqrt(share) + 8);
  if (rank >= size) return no_border;
  *expected = rank * (n / size + 1);
  std::nth_element(sample.begin(), sample.begin() + ptrdiff_t(rank), sample.end(), std::greater<uint32_t>());
  return std::max<int32_t>(int32_t(sample[rank]), 1);
}

// All of the residual is looked at again.
void select_directly(const State<float>& state, uint64_t k, Random& random, Chosen<float>& spare,
                     Chosen<float>& chosen) {
  const Border border = find_border(state.residual, state.length, k);
  Lot lot(border, random);
  if (spare.size() < block + room_behind) spare.resize(block + room_behind);
  uint64_t filled = 0;
  for (uint64_t start = 0; start < state.length; start += block) {
    Sink sink = {spare.positions.data(), spare.values.data(), block, 0, 0};
    scan(state.residual + start, std::min(block, state.length - start), start, int32_t(border.bits), &sink);
    if (chosen.size() < filled + sink.count) chosen.resize(std::min(k, 2 * filled + block) + block);
    filter(sink.positions, sink.values, sink.count, lot, chosen, &filled);
  }
  chosen.resize(filled);
}

}  // namespace

uint64_t update_and_select(const State<float>& state, const float* gradient, float factor, uint64_t k, Random& random,
                           Chosen<float>& spare, Chosen<float>& chosen) {
  uint64_t expected = 0;
  const int32_t border = guess_border(state, gradient, factor, k, random, &expected);
  const uint64_t capacity = border == no_border ? 0 : std::min(state.length, std::max(4 * k, 2 * expected) + 1024);
  if (spare.size() < capacity + room_behind) spare.resize(capacity + room_behind);
  Sink sink = {spare.positions.data(), spare.values.data(), capacity, 0, 0};
  update(state.momentum, state.residual, gradient, state.length, factor, border, &sink);
  if (k == 0) {
    chosen.resize(0);
  } else if (sink.count >= k && sink.count <= capacity) {
    Lot lot(find_border(sink.values, sink.count, k), random);
    uint64_t filled = 0;
    chosen.resize(sink.count);
    filter(sink.positions, sink.values, sink.count, lot, chosen, &filled);
    chosen.resize(filled);
  } else {
    select_directly(state, k, random, spare, chosen);
  }
  return sink.num_infinite;
}

// Rare: keys of float64, one value at a time.
uint64_t update_and_select(const State<double>& state, const double* gradient, double factor, uint64_t k,
                           Random& random, Chosen<double>& spare, Chosen<double>& chosen) {
  constexpr double most = std::numeric_limits<float>::max();  // what can travel
  uint64_t num_infinite = 0;
  spare.values.resize(state.length);
  for (uint64_t i = 0; i < state.length; ++i) {
    const bool is_finite = std::isfinite(gradient[i]);
    num_infinite += !is_finite;
    double next = is_finite ? gradient[i] : 0.0;
    if (state.momentum != nullptr)
      next = state.momentum[i] = std::clamp(factor * state.momentum[i] + next, -most, most);
    state.residual[i] = std::clamp(state.residual[i] + next, -most, most);
    spare.values[i] = std::fabs(state.residual[i]);
  }
  chosen.resize(0);
  if (k == 0) return num_infinite;
  std::nth_element(spare.values.begin(), spare.values.begin() + ptrdiff_t(k - 1), spare.values.end(),
                   std::greater<double>());
  const double border = spare.values[k - 1];
  uint64_t above = 0, equal = 0;
  for (uint64_t i = 0; i < state.length; ++i) {
    above += std::fabs(state.residual[i]) > border;
    equal += std::fabs(state.residual[i]) == border;
  }
  uint64_t taken = border == 0.0 ? 0 : k - above;
  for (uint64_t i = 0; i < state.length; ++i) {
    const double size = std::fabs(state.residual[i]);
    if (size < border || size == 0.0 || (size == border && random.below(equal--) >= taken)) continue;
    taken -= size == border;
    chosen.positions.push_back(uint32_t(i));
    chosen.values.push_back(state.residual[i]);
  }
  return num_infinite;
}

}  // namespace bsc
