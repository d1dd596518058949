// See four_bits.h.
#include "four_bits.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace dgt {
namespace {

constexpr uint64_t block_length = 32;
constexpr float levels = 7;  // on each side of zero

uint64_t size_of(uint64_t length) {
  const uint64_t blocks = (length + block_length - 1) / block_length;
  return blocks * sizeof(float) + (length + 1) / 2;
}

uint64_t max_encoded_size(gx_codec*, const gx_slice* slice) { return size_of(slice->length); }

// Values that are not finite count as zero: they would take the whole block with them.
float finite(float value) { return std::isfinite(value) ? value : 0; }

uint8_t nibble_of(float value, float scale) {
  const float q = scale == 0 ? 0 : std::nearbyint(finite(value) / scale);
  return static_cast<uint8_t>(static_cast<int>(std::clamp(q, -levels, levels)) + 8);
}

uint8_t* encode_block(const float* values, uint64_t length, uint8_t* to) {
  float largest = 0;
  for (uint64_t i = 0; i < length; ++i) largest = std::max(largest, std::fabs(finite(values[i])));
  const float scale = largest / levels;
  std::memcpy(to, &scale, sizeof(scale));
  to += sizeof(scale);
  for (uint64_t i = 0; i < length; i += 2) {
    const uint8_t low = nibble_of(values[i], scale);
    const uint8_t high = i + 1 < length ? nibble_of(values[i + 1], scale) : 8;
    *to++ = static_cast<uint8_t>(low | high << 4);
  }
  return to;
}

gx_status encode(gx_codec*, void*, const gx_slice* in, gx_buffer* out, gx_error*) {
  out->size = size_of(in->length);
  if (out->capacity < out->size) return GX_ENOSPC;
  const float* values = static_cast<const float*>(in->data);
  uint8_t* to = out->data;
  for (uint64_t at = 0; at < in->length; at += block_length)
    to = encode_block(values + at, std::min(block_length, in->length - at), to);
  return GX_OK;
}

gx_status decode(gx_codec*, gx_bytes in, int accumulate, const gx_slice* to, gx_error* error) {
  if (in.size != size_of(to->length)) {
    std::snprintf(error->message, sizeof(error->message), "expected %llu bytes for %llu values of 4 bits but got %llu",
                  static_cast<unsigned long long>(size_of(to->length)), static_cast<unsigned long long>(to->length),
                  static_cast<unsigned long long>(in.size));
    return GX_ECORRUPT;
  }
  float* values = static_cast<float*>(to->data);
  const uint8_t* from = in.data;
  for (uint64_t at = 0; at < to->length; at += block_length) {
    const uint64_t length = std::min(block_length, to->length - at);
    float scale;
    std::memcpy(&scale, from, sizeof(scale));
    from += sizeof(scale);
    for (uint64_t i = 0; i < length; ++i) {
      const int nibble = (i % 2 == 0 ? from[i / 2] & 15 : from[i / 2] >> 4) - 8;
      const float value = scale * static_cast<float>(nibble);
      values[at + i] = accumulate != 0 ? values[at + i] + value : value;
    }
    from += (length + 1) / 2;
  }
  return GX_OK;
}

}  // namespace

gx_status make_four_bits(void*, const gx_host*, const gx_site*, gx_params, gx_codec* out, gx_error*) {
  out->struct_size = sizeof(gx_codec);
  out->wire_id = GX_FOURCC('D', 'G', 'T', '4');
  out->scope = GX_SCOPE_PART;
  out->caps = GX_CARRIES_GRADIENTS;
  out->dtypes = GX_DTYPE_BIT(GX_F32) | GX_DTYPE_BIT(GX_F16) | GX_DTYPE_BIT(GX_BF16);
  out->max_encoded_size = max_encoded_size;
  out->encode = encode;
  out->decode = decode;
  return GX_OK;
}

}  // namespace dgt
