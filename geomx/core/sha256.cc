// See sha256.h. The round constants are the first 32 bits of the fractional parts of the cube roots of the first 64
// primes, the initial state those of the square roots of the first 8; they are computed, which is shorter than a table.
#include "sha256.h"

#include <cmath>
#include <cstring>
#include <string>

namespace geomx {

namespace {

uint32_t rotated(uint32_t x, int by) { return x >> by | x << (32 - by); }

struct Constants {
  std::array<uint32_t, 64> round;
  std::array<uint32_t, 8> initial;

  Constants() {
    size_t found = 0;
    for (uint32_t candidate = 2; found < round.size(); ++candidate) {
      bool is_prime = true;
      for (uint32_t divisor = 2; divisor * divisor <= candidate; ++divisor) is_prime &= candidate % divisor != 0;
      if (!is_prime) continue;
      // 80-bit long double would do; integer roots do everywhere: floor(2^32 * root) by bisection.
      round[found] = root_fraction(candidate, 3);
      if (found < initial.size()) initial[found] = root_fraction(candidate, 2);
      ++found;
    }
  }

  static uint32_t root_fraction(uint32_t value, int degree) {
    uint64_t low = 0, high = uint64_t{1} << 37;  // of 2^32 * root: roots of primes up to 311 are below 2^5
    while (high - low > 1) {
      const uint64_t middle = (low + high) / 2;
      (is_at_most(middle, value, degree) ? low : high) = middle;
    }
    return static_cast<uint32_t>(low);
  }

  // (scaled / 2^32)^degree <= value, in whole numbers of 128 bits.
  static bool is_at_most(uint64_t scaled, uint32_t value, int degree) {
    __extension__ using Wide = unsigned __int128;
    const Wide square = Wide{scaled} * scaled;  // below 2^74
    if (degree == 2) return square <= Wide{value} << 64;
    // cube <= value * 2^96, divided by 2^32 on both sides without losing the comparison's exactness
    const Wide high = (square >> 32) * scaled, low = (square & 0xffffffffu) * scaled;
    const Wide cube = high + (low >> 32);
    const bool has_rest = (low & 0xffffffffu) != 0;
    const Wide limit = Wide{value} << 64;
    return cube < limit || (cube == limit && !has_rest);
  }
};

void absorb(std::array<uint32_t, 8>& state, const uint8_t* block, const Constants& constants) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i) {
    w[i] = uint32_t{block[4 * i]} << 24 | uint32_t{block[4 * i + 1]} << 16 | uint32_t{block[4 * i + 2]} << 8 |
           block[4 * i + 3];
  }
  for (int i = 16; i < 64; ++i) {
    const uint32_t s0 = rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ w[i - 15] >> 3;
    const uint32_t s1 = rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (int i = 0; i < 64; ++i) {
    const uint32_t s1 = rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + constants.round[static_cast<size_t>(i)] + w[i];
    const uint32_t s0 = rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const uint32_t to[8] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state[i] += to[i];
}

}  // namespace

Digest sha256(std::string_view text) {
  static const Constants constants;
  std::string padded(text);
  padded.push_back(static_cast<char>(0x80));
  while (padded.size() % 64 != 56) padded.push_back(0);
  for (int shift = 56; shift >= 0; shift -= 8) padded.push_back(static_cast<char>(uint64_t{text.size()} * 8 >> shift));

  std::array<uint32_t, 8> state = constants.initial;
  for (size_t at = 0; at < padded.size(); at += 64) {
    absorb(state, reinterpret_cast<const uint8_t*>(padded.data()) + at, constants);
  }
  Digest digest;
  for (size_t i = 0; i < digest.size(); ++i) digest[i] = static_cast<uint8_t>(state[i / 4] >> (24 - i % 4 * 8));
  return digest;
}

bool is_equal(const Digest& a, const Digest& b) {
  uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference = static_cast<uint8_t>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

}  // namespace geomx
