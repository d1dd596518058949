// The codec that changes nothing: a key's own type on the wire, sums in sum_type.
#pragma once
#include "codec.h"

namespace geomx {

constexpr uint32_t kRawWireId = fourcc('R', 'A', 'W', ' ');
// Has no state: one for all.
Codec& identity_codec();

}  // namespace geomx
