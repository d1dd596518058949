// "bsc-original": the published behaviour, for comparisons. A border from a small sample at the same places each round;
// elements that reach it leave in the order of their indices until the capacity is full; momentum 0.9. What comes down
// are all elements that aren't 0, in the order of their indices, up to the capacity times the number of parties,
// without a residual. Pairs of value and index take 8 bytes each, unused room included, as there.
//
// Its faults are kept but for what would read or write out of bounds, or confuse positions above 2^24: a sample is
// never larger than the tensor, and indices are integers.
#include <cmath>
#include <functional>
#include <vector>

#include "common.h"
#include "select.h"

namespace bsc {
namespace {

constexpr float factor = 0.9f, unused_value = -65530.0f;
constexpr uint32_t unused_index = UINT32_MAX;
constexpr uint64_t pair_bytes = 8, sample_seed = 42;

struct Original {
  const gx_host* host;
  double ratio = 0.01;
  uint64_t num_parties = 1;
};

struct Memory {
  bool is_up = true;
  uint64_t offset = 0, length = 0;
  Array momentum = no_array(), residual = no_array();
  std::vector<uint32_t> positions;
  std::vector<float> values;
  std::vector<uint64_t> sample;
  float* u() const { return reinterpret_cast<float*>(momentum.get()); }
  float* v() const { return reinterpret_cast<float*>(residual.get()); }
};

Original& of(gx_codec* table) { return *static_cast<Original*>(table->private_data); }

gx_status open_slot(gx_codec*, const gx_slice* whole, void** slot, gx_error* error) {
  if (whole->tensor_length >= UINT32_MAX) return fail(error, GX_EUNSUPPORTED, "the tensor is too long");
  return guarded(error, [&]() -> gx_status {
    auto made = std::make_unique<Memory>();
    made->is_up = whole->direction == GX_UP;
    *slot = made.release();
    return GX_OK;
  });
}

void close_slot(gx_codec*, void* slot) { delete static_cast<Memory*>(slot); }

uint64_t capacity_of(const Original& codec, const Memory& memory) {
  const double share = codec.ratio * double(memory.length) * (memory.is_up ? 1.0 : double(codec.num_parties));
  return std::min(memory.length, uint64_t(share));
}

// The same places each round.
void place_sample(Memory& memory, double ratio) {
  const double share = 0.005 * double(memory.length);
  const uint64_t size = std::min(memory.length, uint64_t(share * ratio >= 10 ? share : 10 / ratio));
  Random random(sample_seed);
  std::vector<uint64_t> all(memory.length);
  for (uint64_t i = 0; i < memory.length; ++i) all[i] = i;
  for (uint64_t i = 0; i < size; ++i) std::swap(all[i], all[i + random.below(memory.length - i)]);
  memory.sample.assign(all.begin(), all.begin() + ptrdiff_t(size));
}

float border_of(const Memory& memory, double ratio) {
  std::vector<float> sizes;
  for (const uint64_t place : memory.sample) sizes.push_back(std::fabs(memory.v()[place]));
  const uint64_t rank = std::max<uint64_t>(uint64_t(double(sizes.size()) * ratio), 1);
  std::nth_element(sizes.begin(), sizes.begin() + ptrdiff_t(rank - 1), sizes.end(), std::greater<float>());
  return sizes[rank - 1];
}

void choose_up(const Original& codec, Memory& memory, const float* gradient) {
  if (memory.sample.empty()) place_sample(memory, codec.ratio);
  for (uint64_t i = 0; i < memory.length; ++i) {
    memory.u()[i] = factor * memory.u()[i] + gradient[i];
    memory.v()[i] += memory.u()[i];
  }
  const float border = border_of(memory, codec.ratio);
  const uint64_t capacity = capacity_of(codec, memory);
  for (uint64_t i = 0; i < memory.length && memory.positions.size() < capacity; ++i) {
    if (!(std::fabs(memory.v()[i]) >= border)) continue;
    memory.positions.push_back(uint32_t(i));
    memory.values.push_back(memory.v()[i]);
    memory.v()[i] = memory.u()[i] = 0;
  }
}

void choose_down(const Original& codec, Memory& memory, const float* sum) {
  const uint64_t capacity = capacity_of(codec, memory);
  for (uint64_t i = 0; i < memory.length && memory.positions.size() < capacity; ++i) {
    if (sum[i] == 0) continue;
    memory.positions.push_back(uint32_t(i));
    memory.values.push_back(sum[i]);
  }
}

gx_status prepare(gx_codec* table, void* slot, const gx_slice* whole, gx_error* error) {
  return guarded(error, [&]() -> gx_status {
    Memory& memory = *static_cast<Memory*>(slot);
    if (memory.is_up && memory.residual == nullptr) {
      memory.residual = make_array(whole->length * sizeof(float));
      memory.momentum = make_array(whole->length * sizeof(float));
    }
    memory.offset = whole->offset;
    memory.length = whole->length;
    memory.positions.clear();
    memory.values.clear();
    if (whole->length == 0) return GX_OK;
    const float* values = static_cast<const float*>(whole->data);
    memory.is_up ? choose_up(of(table), memory, values) : choose_down(of(table), memory, values);
    return GX_OK;
  });
}

uint64_t max_encoded_size(gx_codec*, const gx_slice* part) {
  return pair_bytes * std::max(part->tensor_length, part->length);
}

// The last part carries the room that wasn't used.
gx_status encode(gx_codec* table, void* slot, const gx_slice* in, gx_buffer* out, gx_error* error) {
  const Memory& memory = *static_cast<Memory*>(slot);
  if (in->offset < memory.offset || in->offset + in->length > memory.offset + memory.length)
    return fail(error, GX_EINVAL, "a part lies outside of what was prepared");
  const uint64_t start = in->offset - memory.offset, end = start + in->length;
  const auto first = std::lower_bound(memory.positions.begin(), memory.positions.end(), start);
  const uint64_t begin = uint64_t(first - memory.positions.begin());
  const uint64_t count = uint64_t(std::lower_bound(first, memory.positions.end(), end) - first);
  const uint64_t unused = end == memory.length ? capacity_of(of(table), memory) - memory.positions.size() : 0;
  out->size = pair_bytes * (count + unused);
  if (out->capacity < out->size) return fail(error, GX_ENOSPC, "more room is needed");
  for (uint64_t i = 0; i < count + unused; ++i) {
    const float value = i < count ? memory.values[begin + i] : unused_value;
    const uint32_t index = i < count ? uint32_t(memory.positions[begin + i] - start) : unused_index;
    std::memcpy(out->data + pair_bytes * i, &value, 4);
    std::memcpy(out->data + pair_bytes * i + 4, &index, 4);
  }
  return GX_OK;
}

gx_status decode(gx_codec*, gx_bytes in, int accumulate, const gx_slice* to, gx_error* error) {
  if (in.size % pair_bytes != 0) return fail(error, GX_ECORRUPT, "expected pairs of value and index");
  for (const bool writes : {false, true}) {
    float* sum = static_cast<float*>(to->data);
    if (writes && accumulate == 0 && to->length != 0) std::memset(sum, 0, to->length * sizeof(float));
    for (uint64_t i = 0; i < in.size; i += pair_bytes) {
      float value;
      uint32_t index;
      std::memcpy(&value, in.data + i, 4);
      std::memcpy(&index, in.data + i + 4, 4);
      if (index == unused_index) continue;
      if (index >= to->length || !std::isfinite(value))
        return fail(error, GX_ECORRUPT, "a pair of value and index is wrong");
      if (writes) sum[index] += value;
    }
  }
  return GX_OK;
}

gx_status give_back(gx_codec* table, void* slot, const gx_slice* part, gx_bytes lost, gx_error* error) {
  const Memory& memory = *static_cast<Memory*>(slot);
  if (memory.residual == nullptr || part->offset < memory.offset ||
      part->offset + part->length > memory.offset + memory.length)
    return fail(error, GX_EINVAL, "nothing was sent of what is given back");
  gx_slice into = *part;
  into.data = memory.v() + (part->offset - memory.offset);
  return decode(table, lost, 1, &into, error);
}

void release(gx_codec* table) { delete static_cast<Original*>(table->private_data); }

}  // namespace

gx_status make_original(void*, const gx_host* host, const gx_site* site, gx_params params, gx_codec* out,
                        gx_error* error) {
  return guarded(error, [&]() -> gx_status {
    Original codec = {host, 0.01, std::max(site->num_members, 1u)};
    for (size_t i = 0; i < params.count; ++i) {
      const gx_param& param = params.items[i];
      if (std::strcmp(param.name, "ratio") != 0) return fail(error, GX_EINVAL, "%s: no such option", param.name);
      codec.ratio = param.kind == 'i' ? double(param.i) : param.f;
      if (param.kind == 's' || !(codec.ratio > 0 && codec.ratio <= 1))
        return fail(error, GX_EINVAL, "ratio: allowed is a number above 0 and at most 1");
    }
    out->private_data = new Original(codec);
    out->struct_size = sizeof(gx_codec);
    out->wire_id = GX_FOURCC('B', 'S', 'C', '0');
    out->scope = GX_SCOPE_TENSOR;
    out->caps = GX_KEEPS_RESIDUAL | GX_CARRIES_GRADIENTS;
    out->dtypes = GX_DTYPE_BIT(GX_F32);
    out->open_slot = open_slot;
    out->close_slot = close_slot;
    out->prepare = prepare;
    out->max_encoded_size = max_encoded_size;
    out->encode = encode;
    out->decode = decode;
    out->give_back = give_back;
    out->release = release;
    return GX_OK;
  });
}

}  // namespace bsc
