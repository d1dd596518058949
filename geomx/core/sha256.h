// SHA-256 (FIPS 180-4), for comparing join tokens without sending them. Not for speed.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace geomx {

using Digest = std::array<uint8_t, 32>;

Digest sha256(std::string_view text);
// Takes the same time wherever they differ.
bool is_equal(const Digest& a, const Digest& b);

}  // namespace geomx
