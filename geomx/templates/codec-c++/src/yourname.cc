// The codec "yourname": eight bits for each value. A part's bytes are a float32 scale, then a signed byte a value: a
// value is its byte times the scale. What rounding loses waits in a residual, so that it leaves with a later round.
#include <geomx/plugin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

namespace {

constexpr size_t scale_bytes = sizeof(float);
constexpr float most = 127;

using Residual = std::vector<float>;  // one for each (peer or shared, key, direction)

Residual& residual_of(void* slot) { return *static_cast<Residual*>(slot); }

gx_status fail(gx_error* error, gx_status status, const char* sentence) {
  std::snprintf(error->message, sizeof(error->message), "%s", sentence);
  return status;
}

// No exception may leave a plugin.
gx_status open_slot(gx_codec*, const gx_slice* whole, void** slot, gx_error* error) {
  try {
    *slot = new Residual(whole->tensor_length);
    return GX_OK;
  } catch (const std::bad_alloc&) {
    return fail(error, GX_EINTERNAL, "no memory for a residual");
  }
}

void close_slot(gx_codec*, void* slot) { delete static_cast<Residual*>(slot); }

// ---- a part's way there and back ----

uint64_t max_encoded_size(gx_codec*, const gx_slice* part) { return scale_bytes + part->length; }

// What isn't finite counts as 0: it must not stay in the residual for ever.
float finite(float value) { return std::isfinite(value) ? value : 0; }

gx_status encode(gx_codec* codec, void* slot, const gx_slice* part, gx_buffer* out, gx_error* error) {
  out->size = max_encoded_size(codec, part);
  if (out->capacity < out->size) return fail(error, GX_ENOSPC, "more room is needed");
  const float* values = static_cast<const float*>(part->data);
  float* kept = residual_of(slot).data() + part->offset;
  float largest = 0;
  for (uint64_t i = 0; i < part->length; ++i) {
    kept[i] += finite(values[i]);
    largest = std::max(largest, std::abs(kept[i]));
  }
  const float scale = largest / most;
  std::memcpy(out->data, &scale, scale_bytes);
  for (uint64_t i = 0; i < part->length; ++i) {
    const float step = scale > 0 ? std::clamp(std::nearbyint(kept[i] / scale), -most, most) : 0;
    out->data[scale_bytes + i] = static_cast<uint8_t>(static_cast<int8_t>(step));
    kept[i] -= step * scale;
  }
  return GX_OK;
}

// Bytes come from the network: all of them are looked at before anything is written.
gx_status decode(gx_codec* codec, gx_bytes in, int accumulate, const gx_slice* to, gx_error* error) {
  if (in.size != max_encoded_size(codec, to))
    return fail(error, GX_ECORRUPT, "its size is not that of a part of this length");
  float scale;
  std::memcpy(&scale, in.data, scale_bytes);
  if (!(scale >= 0 && scale <= std::numeric_limits<float>::max() / most))
    return fail(error, GX_ECORRUPT, "its scale is negative or not finite");
  float* data = static_cast<float*>(to->data);
  for (uint64_t i = 0; i < to->length; ++i) {
    const float value = static_cast<float>(static_cast<int8_t>(in.data[scale_bytes + i])) * scale;
    data[i] = accumulate ? data[i] + value : value;
  }
  return GX_OK;
}

// What was sent and not applied is in the residual again.
gx_status give_back(gx_codec* codec, void* slot, const gx_slice* part, gx_bytes lost, gx_error* error) {
  gx_slice into = *part;
  into.data = residual_of(slot).data() + part->offset;
  return decode(codec, lost, 1, &into, error);
}

// ---- a slot at rest: its residual as it lies there ----

gx_status save_slot(gx_codec*, void* slot, gx_buffer* out, gx_error* error) {
  const Residual& kept = residual_of(slot);
  out->size = kept.size() * sizeof(float);
  if (out->capacity < out->size) return fail(error, GX_ENOSPC, "more room is needed");
  if (out->size != 0) std::memcpy(out->data, kept.data(), out->size);
  return GX_OK;
}

gx_status load_slot(gx_codec*, void* slot, gx_bytes in, gx_error* error) {
  Residual& kept = residual_of(slot);
  if (in.size != kept.size() * sizeof(float)) return fail(error, GX_ECORRUPT, "a residual of another length");
  if (in.size != 0) std::memcpy(kept.data(), in.data, in.size);
  return GX_OK;
}

// ---- what the host asks for ----

gx_status make(void*, const gx_host*, const gx_site*, gx_params params, gx_codec* out, gx_error* error) {
  if (params.count != 0) return fail(error, GX_EINVAL, "yourname has no parameters");
  out->struct_size = sizeof(gx_codec);
  out->wire_id = GX_FOURCC('Y', 'O', 'U', 'R');
  out->scope = GX_SCOPE_PART;
  out->caps = GX_KEEPS_RESIDUAL | GX_CARRIES_GRADIENTS;
  out->dtypes = GX_DTYPE_BIT(GX_F32);
  out->open_slot = open_slot;
  out->close_slot = close_slot;
  out->max_encoded_size = max_encoded_size;
  out->encode = encode;
  out->decode = decode;
  out->give_back = give_back;
  out->save_slot = save_slot;
  out->load_slot = load_slot;
  return GX_OK;
}

}  // namespace

gx_status geomx_plugin_v1(const gx_host*, gx_registrar* registrar, gx_error* error) {
  return registrar->add_codec(registrar, "yourname", make, nullptr, error);
}
