// Values in four bits: for what matters least. One scale for each block of 32 values, two values a byte.
//
//   part = block*;  block = scale f32 | 16 bytes, the even value in the low half (the last block: as many as needed)
//
// A value is scale * q with q from -7 to 7, rounded to nearest; so zeros stay zero, and what is lost is at most half a
// scale. Nothing is remembered here: who encodes keeps what is lost.
#pragma once
#include <geomx/plugin.h>

namespace dgt {

inline constexpr const char* four_bits_name = "dgt4";
gx_status make_four_bits(void*, const gx_host*, const gx_site*, gx_params, gx_codec* out, gx_error*);

}  // namespace dgt
