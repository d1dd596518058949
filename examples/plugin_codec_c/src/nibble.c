/* The codec "nibble": four bits for each value, in plain C. A part's bytes are a float32 scale, then two values a byte,
 * the first in the low half: a value is (half - 8) * scale, with halves from 1 to 15 (the last high half of an odd part
 * is 8). What rounding loses waits in a residual, so that it leaves with later rounds.
 *
 * Everything a codec must do is here, nothing else: copy this file to begin one of your own, and give its bytes another
 * wire_id. geomx/plugin.h says what is promised to each function. */
#include <geomx/plugin.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCALE_BYTES = 4, MOST = 7, ZERO = 8 };

static gx_status fail(gx_error* error, gx_status status, const char* sentence) {
  snprintf(error->message, sizeof(error->message), "%s", sentence);
  return status;
}

static uint64_t encoded_size(uint64_t length) { return SCALE_BYTES + (length + 1) / 2; }

/* ---- memory: one residual for each (peer or shared, key, direction) ---- */

typedef struct residual {
  uint64_t length;
  float values[];
} residual;

static gx_status open_slot(gx_codec* codec, const gx_slice* whole, void** slot, gx_error* error) {
  (void)codec;
  residual* made = calloc(1, sizeof(residual) + whole->tensor_length * sizeof(float));
  if (made == NULL) return fail(error, GX_EINTERNAL, "no memory for a residual");
  made->length = whole->tensor_length;
  *slot = made;
  return GX_OK;
}

static void close_slot(gx_codec* codec, void* slot) {
  (void)codec;
  free(slot);
}

/* ---- a part's way there and back ---- */

static uint64_t max_encoded_size(gx_codec* codec, const gx_slice* part) {
  (void)codec;
  return encoded_size(part->length);
}

/* What isn't finite counts as 0: it must not stay in the residual for ever. */
static float wanted(const gx_slice* part, const float* kept, uint64_t i) {
  const float value = ((const float*)part->data)[i];
  return (isfinite(value) ? value : 0.0f) + kept[i];
}

static gx_status encode(gx_codec* codec, void* slot, const gx_slice* part, gx_buffer* out, gx_error* error) {
  (void)codec;
  float* kept = ((residual*)slot)->values + part->offset;
  float largest = 0;
  out->size = encoded_size(part->length);
  if (out->capacity < out->size) return fail(error, GX_ENOSPC, "more room is needed");
  for (uint64_t i = 0; i < part->length; ++i) largest = fmaxf(largest, fabsf(wanted(part, kept, i)));
  const float scale = largest / MOST;
  memcpy(out->data, &scale, SCALE_BYTES);
  memset(out->data + SCALE_BYTES, 0, out->size - SCALE_BYTES);
  for (uint64_t i = 0; i < part->length; ++i) {
    const float want = wanted(part, kept, i);
    const int step = scale > 0 ? (int)lrintf(fmaxf(-MOST, fminf(want / scale, MOST))) : 0;
    out->data[SCALE_BYTES + i / 2] |= (uint8_t)((step + ZERO) << (i % 2 ? 4 : 0));
    kept[i] = want - (float)step * scale;
  }
  if (part->length % 2) out->data[out->size - 1] |= ZERO << 4;
  return GX_OK;
}

static int half_of(gx_bytes in, uint64_t i) { return in.data[SCALE_BYTES + i / 2] >> (i % 2 ? 4 : 0) & 15; }

/* Bytes come from the network: all of them are looked at before anything is written. */
static const char* fault_of(gx_bytes in, uint64_t length, float* scale) {
  if (in.size != encoded_size(length)) return "its size is not that of a part of this length";
  memcpy(scale, in.data, SCALE_BYTES);
  if (!isfinite(*scale) || *scale < 0) return "its scale is negative or not finite";
  for (uint64_t i = 0; i < length; ++i)
    if (half_of(in, i) == 0) return "it has a step beyond the last";
  if (length % 2 && half_of(in, length) != ZERO) return "it has a value behind its end";
  return NULL;
}

static gx_status decode(gx_codec* codec, gx_bytes in, int accumulate, const gx_slice* to, gx_error* error) {
  (void)codec;
  float* data = to->data;
  float scale;
  const char* fault = fault_of(in, to->length, &scale);
  if (fault != NULL) return fail(error, GX_ECORRUPT, fault);
  for (uint64_t i = 0; i < to->length; ++i) {
    const float value = (float)(half_of(in, i) - ZERO) * scale;
    data[i] = accumulate ? data[i] + value : value;
  }
  return GX_OK;
}

/* What was sent and not applied is in the residual again. */
static gx_status give_back(gx_codec* codec, void* slot, const gx_slice* part, gx_bytes lost, gx_error* error) {
  gx_slice into = *part;
  into.data = ((residual*)slot)->values + part->offset;
  return decode(codec, lost, 1, &into, error);
}

/* ---- a slot at rest: its residual as it lies there ---- */

static gx_status save_slot(gx_codec* codec, void* slot, gx_buffer* out, gx_error* error) {
  (void)codec;
  const residual* kept = slot;
  out->size = kept->length * sizeof(float);
  if (out->capacity < out->size) return fail(error, GX_ENOSPC, "more room is needed");
  if (out->size != 0) memcpy(out->data, kept->values, out->size);
  return GX_OK;
}

static gx_status load_slot(gx_codec* codec, void* slot, gx_bytes in, gx_error* error) {
  (void)codec;
  residual* kept = slot;
  if (in.size != kept->length * sizeof(float)) return fail(error, GX_ECORRUPT, "a residual of another length");
  if (in.size != 0) memcpy(kept->values, in.data, in.size);
  return GX_OK;
}

/* ---- what the host asks for ---- */

static gx_status make(void* user, const gx_host* host, const gx_site* site, gx_params params, gx_codec* out,
                      gx_error* error) {
  (void)user, (void)host, (void)site;
  if (params.count != 0) return fail(error, GX_EINVAL, "nibble has no options");
  out->struct_size = sizeof(gx_codec);
  out->wire_id = GX_FOURCC('N', 'I', 'B', '4');
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

gx_status geomx_plugin_v1(const gx_host* host, gx_registrar* registrar, gx_error* error) {
  (void)host;
  return registrar->add_codec(registrar, "nibble", make, NULL, error);
}
