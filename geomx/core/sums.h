// Parts in their own type and in the type that they are summed in.
#pragma once
#include "codec.h"

namespace geomx {

// sum[i] += values[i]; `type` is a sum_type().
void add(DType type, void* sum, const void* values, uint64_t length);
// difference[i] = values[i] - from[i]; `type` is a sum_type().
void subtract(DType type, const void* values, const void* from, void* difference, uint64_t length);
Bytes zeros(size_t size);
// A key's own type <-> its sum_type; the same memory where they are one.
Bytes to_raw(DType dtype, const Bytes& values);
Bytes from_raw(DType dtype, const Bytes& raw);

}  // namespace geomx
