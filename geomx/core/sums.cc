// Types of parts: which kernel sums what.
#include "sums.h"

#include "reduce.h"

namespace geomx {

void add(DType type, void* sum, const void* values, uint64_t length) {
  switch (type) {
    case DType::f64:
      return add_f64(static_cast<double*>(sum), values, length);
    case DType::i32:
      return add_i32(static_cast<int32_t*>(sum), values, length);
    case DType::i64:
      return add_i64(static_cast<int64_t*>(sum), values, length);
    case DType::u8:
      return add_u8(static_cast<uint8_t*>(sum), values, length);
    default:
      return add_f32(static_cast<float*>(sum), values, length);
  }
}

Bytes zeros(size_t size) {
  Bytes out = Bytes::allocate(size);
  if (size != 0) std::memset(out.writable(), 0, size);
  return out;
}

Bytes to_raw(DType dtype, const Bytes& values) {
  if (dtype != DType::f16 && dtype != DType::bf16) return values;
  const uint64_t length = values.size() / sizeof(float);
  Bytes raw = Bytes::allocate(length * size_of(dtype));
  if (dtype == DType::f16)
    f32_to_f16(values.as<float>(), raw.writable(), length);
  else
    f32_to_bf16(values.as<float>(), raw.writable(), length);
  return raw;
}

Bytes from_raw(DType dtype, const Bytes& raw) {
  if (dtype != DType::f16 && dtype != DType::bf16) return raw;
  const uint64_t length = raw.size() / size_of(dtype);
  Bytes values = Bytes::allocate(length * sizeof(float));
  (dtype == DType::f16 ? f16_to_f32 : bf16_to_f32)(raw.data(), reinterpret_cast<float*>(values.writable()), length);
  return values;
}

}  // namespace geomx
