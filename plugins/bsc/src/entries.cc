// Entries: see entries.h.
#include "entries.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

namespace bsc {
namespace {

constexpr uint8_t all_positions = 16;
constexpr uint64_t word_bytes = 8;
constexpr uint32_t infinite = 0x7f800000;
constexpr float rounds = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number, ties to even

uint64_t bytes_for(uint64_t bits) { return (bits + 7) / 8; }

uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

uint64_t load_word(const uint8_t* from) {
  uint64_t word;
  std::memcpy(&word, from, word_bytes);
  return word;
}

uint8_t* put_varint(uint8_t* out, uint64_t value) {
  for (; value >= 128; value >>= 7) *out++ = uint8_t(value | 128);
  *out++ = uint8_t(value);
  return out;
}

// ---- positions -----------------------------------------------------------------------------------------------------

uint64_t high_sum(const uint32_t* gaps, uint64_t count, uint32_t low) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < count; ++i) sum += gaps[i] >> low;
  return sum;
}

// The width with the fewest bits: the one that is right for geometric gaps, or a neighbour of it.
uint32_t best_low(const uint32_t* gaps, uint64_t count, uint64_t length) {
  const double mean = double(length - count) / double(count);
  uint32_t guess = 0;
  while (guess < 30 && double(uint64_t(1) << guess) < mean * 0.69) ++guess;
  uint32_t best = guess;
  uint64_t least = UINT64_MAX;
  for (uint32_t low = guess == 0 ? 0 : guess - 1; low <= std::min(guess + 1, 31u); ++low) {
    const uint64_t bits = count * (1 + low) + high_sum(gaps, count, low);
    if (bits < least) {
      least = bits;
      best = low;
    }
  }
  return best;
}

uint8_t* put_low_bits(const uint32_t* gaps, uint64_t count, uint32_t low, uint8_t* out) {
  if (low == 0) return out;
  uint64_t word = 0;
  uint32_t filled = 0;
  const uint64_t mask = (uint64_t(1) << low) - 1;
  for (uint64_t i = 0; i < count; ++i) {
    word |= (gaps[i] & mask) << filled;
    filled += low;
    if (filled >= 32) {
      const uint32_t ready = uint32_t(word);
      std::memcpy(out, &ready, 4);
      out += 4;
      word >>= 32;
      filled -= 32;
    }
  }
  for (; filled > 0; filled -= std::min(filled, 8u)) {
    *out++ = uint8_t(word);
    word >>= 8;
  }
  return out;
}

uint8_t* put_high_bits(const uint32_t* gaps, uint64_t count, uint32_t low, uint8_t* out) {
  const uint64_t bits = high_sum(gaps, count, low) + count;
  std::memset(out, 0, bytes_for(bits));
  uint64_t at = 0;
  for (uint64_t i = 0; i < count; ++i) {
    at += gaps[i] >> low;
    out[at >> 3] = uint8_t(out[at >> 3] | 1u << (at & 7));
    ++at;
  }
  return out + bytes_for(bits);
}

// Reads what put_high_bits and put_low_bits wrote, from memory that may be read eight bytes past its end. Returns the
// position behind the last one.
uint64_t get_positions(const uint8_t* low_bits, uint32_t low, const uint8_t* high_bits, uint64_t num_high_bytes,
                       uint32_t* positions, const uint8_t* target, uint64_t target_width) {
  const uint64_t mask = (uint64_t(1) << low) - 1;
  uint64_t next = 0, low_at = 0, i = 0;
  int64_t before = -1;
  for (uint64_t at = 0; at < num_high_bytes; at += word_bytes) {
    for (uint64_t word = load_word(high_bits + at); word != 0; word &= word - 1) {
      const int64_t one = int64_t(at * 8) + __builtin_ctzll(word);
      const uint64_t gap =
          uint64_t(one - before - 1) << low | (load_word(low_bits + (low_at >> 3)) >> (low_at & 7) & mask);
      before = one;
      low_at += low;
      next += gap;
      // Into the second level and for reading: that many more of these can be under way at once (measured: twice as
      // fast as into the first, or for writing).
      __builtin_prefetch(target + next * target_width, 0, 1);
      positions[i++] = uint32_t(next++);
    }
  }
  return next;
}

uint64_t count_ones(const uint8_t* bytes, uint64_t size) {
  uint64_t ones = 0, i = 0;
  for (; i + word_bytes <= size; i += word_bytes) ones += uint64_t(__builtin_popcountll(load_word(bytes + i)));
  for (; i < size; ++i) ones += uint64_t(__builtin_popcount(bytes[i]));
  return ones;
}

// ---- values --------------------------------------------------------------------------------------------------------

float largest(const float* values, uint64_t count) {
  float most = 0;
  for (uint64_t i = 0; i < count; ++i) most = std::max(most, std::fabs(values[i]));
  return most;
}

uint8_t* put_singles(const float* values, uint64_t count, float* sent, uint8_t* out) {
  std::memcpy(out, values, 4 * count);
  std::copy(values, values + count, sent);
  return out + 4 * count;
}

// The exponent brings the largest value close below 2^15, so that halves overflow nowhere and lose little.
uint8_t* put_halves(const float* values, uint64_t count, const gx_kernels& kernels, float* sent, uint8_t* out) {
  int exponent;
  std::frexp(largest(values, count), &exponent);
  exponent = std::clamp(exponent - 15, -126, 127);
  *out++ = uint8_t(int8_t(exponent));
  const float down = std::ldexp(1.0f, -exponent), up = std::ldexp(1.0f, exponent);
  for (uint64_t i = 0; i < count; ++i) sent[i] = values[i] * down;
  kernels.f32_to_f16(sent, out, count, GX_SATURATE);
  kernels.f16_to_f32(out, sent, count);
  for (uint64_t i = 0; i < count; ++i) sent[i] *= up;
  return out + 2 * count;
}

// A bfloat16, rounded up so that 127 of it reach the largest value.
uint16_t scale_of(const float* values, uint64_t count) {
  const uint32_t bits = bits_of(largest(values, count) / 127.0f);
  return uint16_t(std::min<uint32_t>((bits + 0xffff) >> 16, 0x7f7f));
}

uint8_t* put_bytes(const float* values, uint64_t count, float* sent, uint8_t* out) {
  const uint64_t blocks = (count + values_per_scale - 1) / values_per_scale;
  uint8_t* steps = out + 2 * blocks;
  for (uint64_t block = 0; block < blocks; ++block) {
    const uint64_t start = block * values_per_scale, n = std::min(values_per_scale, count - start);
    const uint16_t stored = scale_of(values + start, n);
    std::memcpy(out + 2 * block, &stored, 2);
    const float scale = float_of(uint32_t(stored) << 16);
    const float inverse = scale >= FLT_MIN ? 1.0f / scale : 0.0f;
    for (uint64_t i = start; i < start + n; ++i) {
      const float step = (values[i] * inverse + rounds) - rounds;
      steps[i] = uint8_t(int32_t(step));
      sent[i] = step * scale;
    }
  }
  return steps + count;
}

uint64_t value_bytes(Width width, uint64_t count) {
  if (width == Width::single) return 4 * count;
  if (width == Width::half) return 1 + 2 * count;
  return count + 2 * ((count + values_per_scale - 1) / values_per_scale);
}

const char* get_halves(const uint8_t* in, uint64_t count, const gx_kernels& kernels, float* values) {
  const float up = std::ldexp(1.0f, int8_t(*in));
  kernels.f16_to_f32(in + 1, values, count);
  for (uint64_t i = 0; i < count; ++i) values[i] *= up;
  return nullptr;
}

const char* get_bytes(const uint8_t* in, uint64_t count, float* values) {
  const uint64_t blocks = (count + values_per_scale - 1) / values_per_scale;
  const uint8_t* steps = in + 2 * blocks;
  for (uint64_t block = 0; block < blocks; ++block) {
    uint16_t stored;
    std::memcpy(&stored, in + 2 * block, 2);
    if (stored >= 0x7f80) return "a scale is negative or not finite";
    const float scale = float_of(uint32_t(stored) << 16);
    const uint64_t end = std::min(count, (block + 1) * values_per_scale);
    for (uint64_t i = block * values_per_scale; i < end; ++i) values[i] = float(int8_t(steps[i])) * scale;
  }
  return nullptr;
}

const char* get_values(const uint8_t* in, Width width, uint64_t count, const gx_kernels& kernels, float* values) {
  const char* wrong = nullptr;
  if (width == Width::single)
    std::memcpy(values, in, 4 * count);
  else if (width == Width::half)
    wrong = get_halves(in, count, kernels, values);
  else
    wrong = get_bytes(in, count, values);
  if (wrong != nullptr) return wrong;
  uint32_t is_infinite = 0;
  for (uint64_t i = 0; i < count; ++i) is_infinite |= uint32_t((bits_of(values[i]) & infinite) == infinite);
  return is_infinite != 0 ? "a value is not finite" : nullptr;
}

bool get_varint(const uint8_t*& at, const uint8_t* end, uint64_t* value) {
  *value = 0;
  for (uint32_t shift = 0; at != end && shift < 35; shift += 7) {
    const uint8_t byte = *at++;
    *value |= uint64_t(byte & 127) << shift;
    if (byte < 128) return byte != 0 || shift == 0;
  }
  return false;
}

}  // namespace

// Gaps that sum up to the length cost at most two bits a position; eight bits of a value cost less than 32 of it.
uint64_t max_size(uint64_t length) { return 32 + 4 * length + length / 4 + length / 64; }

uint64_t write(const uint32_t* positions, const float* values, uint64_t count, uint64_t length, Width width,
               const gx_kernels& kernels, Scratch& scratch, float* sent, uint8_t* out) {
  const bool is_all = count == length;
  uint8_t* at = out;
  *at++ = uint8_t(uint8_t(width) | (is_all && count != 0 ? all_positions : 0));
  at = put_varint(at, count);
  if (count == 0) return uint64_t(at - out);
  uint32_t low = 0;
  if (!is_all) {
    scratch.gaps.resize(count);
    scratch.gaps[0] = positions[0];
    for (uint64_t i = 1; i < count; ++i) scratch.gaps[i] = positions[i] - positions[i - 1] - 1;
    low = best_low(scratch.gaps.data(), count, length);
    *at++ = uint8_t(low);
  }
  if (width == Width::single)
    at = put_singles(values, count, sent, at);
  else if (width == Width::half)
    at = put_halves(values, count, kernels, sent, at);
  else
    at = put_bytes(values, count, sent, at);
  if (is_all) return uint64_t(at - out);
  at = put_low_bits(scratch.gaps.data(), count, low, at);
  return uint64_t(put_high_bits(scratch.gaps.data(), count, low, at) - out);
}

const char* read(gx_bytes in, uint64_t length, const gx_kernels& kernels, Scratch& scratch, Entries& entries,
                 const void* target, uint64_t target_width) {
  const uint8_t *at = in.data, *end = in.data + in.size;
  if (in.size < 2) return "it is cut short";
  const uint8_t kind = *at++;
  if ((kind & ~all_positions) > uint8_t(Width::byte)) return "its width of values is unknown";
  const Width width = Width(kind & ~all_positions);
  const bool is_all = (kind & all_positions) != 0;
  uint64_t count;
  if (!get_varint(at, end, &count)) return "its count is malformed";
  if (count > length) return "it has more entries than the part has elements";
  if (is_all && (count != length || count == 0)) return "it says that it has all positions and hasn't";
  if (count == 0) {
    entries.resize(0);
    return at == end ? nullptr : "it has bytes behind its end";
  }
  uint64_t low = 0;
  if (!is_all) {
    if (at == end) return "it is cut short";
    low = *at++;
    if (low > 31) return "its gaps are too wide";
  }
  const uint64_t left = uint64_t(end - at), num_value_bytes = value_bytes(width, count);
  const uint64_t num_low_bytes = bytes_for(count * low);
  if (left < num_value_bytes + num_low_bytes) return "it is cut short";
  const uint64_t num_high_bytes = left - num_value_bytes - num_low_bytes;
  const uint8_t* high = end - num_high_bytes;
  if (is_all) {
    if (left != num_value_bytes) return "it has bytes behind its end";
  } else {
    if (num_high_bytes == 0 || end[-1] == 0) return "its gaps end in nothing";
    if (num_high_bytes > bytes_for((length >> low) + count)) return "its gaps are wider than the part";
    if (count_ones(high, num_high_bytes) != count) return "it has another count of gaps than of entries";
    if (count * low % 8 != 0 && high[-1] >> (count * low % 8) != 0) return "its gaps end in nothing";
  }
  entries.resize(count);
  if (is_all) {
    for (uint64_t i = 0; i < count; ++i) entries.positions[i] = uint32_t(i);
    return get_values(at, width, count, kernels, entries.values.data());
  }
  const uint64_t num_stream_bytes = num_low_bytes + num_high_bytes;
  if (scratch.streams.size() < num_stream_bytes + 2 * word_bytes)
    scratch.streams.resize(num_stream_bytes + 2 * word_bytes);
  std::memcpy(scratch.streams.data(), at + num_value_bytes, num_stream_bytes);
  std::memset(scratch.streams.data() + num_stream_bytes, 0, 2 * word_bytes);
  const uint64_t behind =
      get_positions(scratch.streams.data(), uint32_t(low), scratch.streams.data() + num_low_bytes, num_high_bytes,
                    entries.positions.data(), static_cast<const uint8_t*>(target), target_width);
  if (behind > length) return "its gaps are wider than the part";
  return get_values(at, width, count, kernels, entries.values.data());
}

}  // namespace bsc
