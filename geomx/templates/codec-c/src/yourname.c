/* The codec "yourname": eight bits for each value. A part's bytes are a float32 scale, then a signed byte a value: a
 * value is its byte times the scale. What rounding loses waits in a residual, so that it leaves with a later round. */
#include <float.h>
#include <geomx/plugin.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCALE_BYTES = 4, MOST = 127 };

static gx_status fail(gx_error* error, gx_status status, const char* sentence) {
  snprintf(error->message, sizeof(error->message), "%s", sentence);
  return status;
}

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
  return SCALE_BYTES + part->length;
}

/* What isn't finite counts as 0: it must not stay in the residual for ever. */
static float wanted(const gx_slice* part, const float* kept, uint64_t i) {
  const float value = ((const float*)part->data)[i];
  return (isfinite(value) ? value : 0.0f) + kept[i];
}

static gx_status encode(gx_codec* codec, void* slot, const gx_slice* part, gx_buffer* out, gx_error* error) {
  float* kept = ((residual*)slot)->values + part->offset;
  float largest = 0;
  out->size = max_encoded_size(codec, part);
  if (out->capacity < out->size) return fail(error, GX_ENOSPC, "more room is needed");
  for (uint64_t i = 0; i < part->length; ++i) largest = fmaxf(largest, fabsf(wanted(part, kept, i)));
  const float scale = largest / MOST;
  memcpy(out->data, &scale, SCALE_BYTES);
  for (uint64_t i = 0; i < part->length; ++i) {
    const float want = wanted(part, kept, i);
    const int step = scale > 0 ? (int)lrintf(fmaxf(-MOST, fminf(want / scale, MOST))) : 0;
    out->data[SCALE_BYTES + i] = (uint8_t)(int8_t)step;
    kept[i] = want - (float)step * scale;
  }
  return GX_OK;
}

/* Bytes come from the network: all of them are looked at before anything is written. */
static gx_status decode(gx_codec* codec, gx_bytes in, int accumulate, const gx_slice* to, gx_error* error) {
  float* data = to->data;
  float scale;
  if (in.size != max_encoded_size(codec, to))
    return fail(error, GX_ECORRUPT, "its size is not that of a part of this length");
  memcpy(&scale, in.data, SCALE_BYTES);
  if (!(scale >= 0 && scale <= FLT_MAX / MOST)) return fail(error, GX_ECORRUPT, "its scale is negative or not finite");
  for (uint64_t i = 0; i < to->length; ++i) {
    const float value = (float)(int8_t)in.data[SCALE_BYTES + i] * scale;
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

gx_status geomx_plugin_v1(const gx_host* host, gx_registrar* registrar, gx_error* error) {
  (void)host;
  return registrar->add_codec(registrar, "yourname", make, NULL, error);
}
