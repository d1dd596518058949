// Types of parts: which kernel sums what.
#include "sums.h"

#include "reduce.h"

namespace geomx {
namespace {

template <typename T>
void subtract_as(const void* values, const void* from, void* difference, uint64_t length) {
  const T *a = static_cast<const T*>(values), *b = static_cast<const T*>(from);
  T* out = static_cast<T*>(difference);
  for (uint64_t i = 0; i < length; ++i) out[i] = T(a[i] - b[i]);
}

}  // namespace

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

void subtract(DType type, const void* values, const void* from, void* difference, uint64_t length) {
  switch (type) {
    case DType::f64:
      return subtract_as<double>(values, from, difference, length);
    case DType::i32:
      return subtract_as<int32_t>(values, from, difference, length);
    case DType::i64:
      return subtract_as<int64_t>(values, from, difference, length);
    case DType::u8:
      return subtract_as<uint8_t>(values, from, difference, length);
    default:
      return subtract_as<float>(values, from, difference, length);
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
