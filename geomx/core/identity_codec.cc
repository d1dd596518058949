// The identity codec. Where the key's type is the one that it is summed in, nothing is copied in either direction;
// halves become float32 on the way to the sum and halves again on the wire. Keeps nothing between rounds.
#include "identity_codec.h"

#include <cmath>

#include "reduce.h"
#include "sums.h"

namespace geomx {

namespace {

Status wrong_size(uint64_t length, DType dtype, size_t size) {
  return Status::error("expected " + std::to_string(length * size_of(dtype)) + " bytes for " + std::to_string(length) +
                       " elements of " + name_of(dtype) + " but got " + std::to_string(size));
}

bool is_aligned(const Bytes& bytes, DType dtype) {
  return reinterpret_cast<uintptr_t>(bytes.data()) % size_of(dtype) == 0;
}

// Half precision to float32; the same memory where that is what it already holds.
Bytes widened(const PartView& view, const Bytes& encoded) {
  if (view.dtype != DType::f16 && view.dtype != DType::bf16) {
    return is_aligned(encoded, view.dtype) ? encoded : Bytes::copy(encoded.data(), encoded.size());
  }
  Bytes values = Bytes::allocate(view.length * sizeof(float));
  float* to = reinterpret_cast<float*>(values.writable());
  if (view.dtype == DType::f16) {
    f16_to_f32(encoded.data(), to, view.length);
  } else {
    bf16_to_f32(encoded.data(), to, view.length);
  }
  return values;
}

template <typename T>
double magnitude_of(const T* values, uint64_t length) {
  double sum = 0;
  for (uint64_t i = 0; i < length; ++i) sum += std::fabs(static_cast<double>(values[i]));
  return sum;
}

class IdentityCodec : public Codec {
 public:
  uint32_t wire_id() const override { return kRawWireId; }
  bool can_merge() const override { return true; }

  std::unique_ptr<Slot> open_slot(const PartView&) override { return std::make_unique<Slot>(); }
  Status prepare(Slot&, const PartView&, const Bytes&) override { return {}; }

  Status encode(Slot&, const PartView& view, const Bytes& values, Bytes* encoded) override {
    const DType from = sum_type(view.dtype);
    if (values.size() != view.length * size_of(from)) return wrong_size(view.length, from, values.size());
    if (view.dtype == from) {
      *encoded = values;
      return {};
    }
    Bytes halves = Bytes::allocate(view.length * size_of(view.dtype));
    if (view.dtype == DType::f16) {
      f32_to_f16(values.as<float>(), halves.writable(), view.length);
    } else {
      f32_to_bf16(values.as<float>(), halves.writable(), view.length);
    }
    *encoded = std::move(halves);
    return {};
  }

  Status decode(const PartView& view, const Bytes& encoded, Bytes* values) override {
    Status status = check_encoded_size(view, encoded.size());
    if (status.ok()) *values = widened(view, encoded);
    return status;
  }

  Status accumulate(const PartView& view, const Bytes& encoded, void* sum) override {
    Status status = check_encoded_size(view, encoded.size());
    if (!status.ok()) return status;
    const void* from = encoded.data();
    switch (view.dtype) {
      case DType::f32:
        add_f32(static_cast<float*>(sum), from, view.length);
        break;
      case DType::f16:
        add_f16_to_f32(static_cast<float*>(sum), from, view.length);
        break;
      case DType::bf16:
        add_bf16_to_f32(static_cast<float*>(sum), from, view.length);
        break;
      case DType::f64:
        add_f64(static_cast<double*>(sum), from, view.length);
        break;
      case DType::i32:
        add_i32(static_cast<int32_t*>(sum), from, view.length);
        break;
      case DType::i64:
        add_i64(static_cast<int64_t*>(sum), from, view.length);
        break;
      case DType::u8:
        add_u8(static_cast<uint8_t*>(sum), from, view.length);
        break;
    }
    return {};
  }

  Status add(const PartView& view, const Bytes& encoded, const Bytes& base, void* sum) override {
    if (view.dtype != DType::f32) return Codec::add(view, encoded, base, sum);
    Status status = check_encoded_size(view, encoded.size());
    if (status.ok()) sum_f32(static_cast<float*>(sum), base.data(), encoded.data(), view.length);
    return status;
  }

  Status give_back(Slot&, const PartView&, const Bytes&) override {
    return Status::error("codec identity keeps no residual: what is lost has to be kept by who sends it");
  }

  Status merge(const PartView& view, const std::vector<Bytes>& encoded, Bytes* merged) override {
    Bytes sum = Bytes::allocate(view.length * size_of(sum_type(view.dtype)));
    if (!sum.empty()) std::memset(sum.writable(), 0, sum.size());
    for (const Bytes& one : encoded)
      if (Status status = accumulate(view, one, sum.writable()); !status.ok()) return status;
    *merged = to_raw(view.dtype, sum);
    return {};
  }

  Status score(const PartView& view, const Bytes& encoded, double* contribution) override {
    Status status = check_encoded_size(view, encoded.size());
    if (!status.ok()) return status;
    const Bytes values = widened(view, encoded);
    switch (sum_type(view.dtype)) {
      case DType::f64:
        *contribution = magnitude_of(values.as<double>(), view.length);
        break;
      case DType::i32:
        *contribution = magnitude_of(values.as<int32_t>(), view.length);
        break;
      case DType::i64:
        *contribution = magnitude_of(values.as<int64_t>(), view.length);
        break;
      case DType::u8:
        *contribution = magnitude_of(values.as<uint8_t>(), view.length);
        break;
      default:
        *contribution = abs_sum_f32(values.data(), view.length);
    }
    return {};
  }

  Status save_slot(const Slot&, Bytes* out) const override {
    *out = {};
    return {};
  }

  Status load_slot(Slot&, const Bytes& in) override {
    if (in.empty()) return {};
    return Status::error("codec identity keeps no state but got " + std::to_string(in.size()) + " bytes of it");
  }
};

}  // namespace

Status check_encoded_size(const PartView& view, size_t size) {
  return size == view.length * size_of(view.dtype) ? Status() : wrong_size(view.length, view.dtype, size);
}

Codec& identity_codec() {
  static IdentityCodec codec;
  return codec;
}

std::unique_ptr<Codec> make_identity_codec() { return std::make_unique<IdentityCodec>(); }

}  // namespace geomx
