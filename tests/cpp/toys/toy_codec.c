/* A codec in plain C: sends every value as one signed byte of a grid, and keeps what rounding left out. With its faults
 * on request, for the tests of the host. */
#include <geomx/plugin.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct toy {
  const gx_host* host;
  double step;
  int is_liar; /* says that it wrote more than it may */
} toy;

typedef struct toy_slot {
  uint64_t length;
  float residual[];
} toy_slot;

static gx_status fail(gx_error* err, gx_status status, const char* message) {
  snprintf(err->message, sizeof(err->message), "%s", message);
  return status;
}

static gx_status open_slot(gx_codec* self, const gx_slice* whole, void** slot, gx_error* err) {
  toy_slot* made = calloc(1, sizeof(toy_slot) + whole->tensor_length * sizeof(float));
  (void)self;
  if (made == NULL) return fail(err, GX_EINTERNAL, "no memory");
  made->length = whole->tensor_length;
  *slot = made;
  return GX_OK;
}

static void close_slot(gx_codec* self, void* slot) {
  toy* codec = self->private_data;
  codec->host->metric(codec->host, "toy.closed_slots", 1);
  free(slot);
}

static gx_status prepare(gx_codec* self, void* slot, const gx_slice* whole, gx_error* err) {
  toy_slot* state = slot;
  const float* values = whole->data;
  (void)self;
  if (whole->length != state->length) return fail(err, GX_EINVAL, "a whole that isn't");
  for (uint64_t i = 0; i < whole->length; ++i) state->residual[i] += values[i];
  return GX_OK;
}

static uint64_t max_encoded_size(gx_codec* self, const gx_slice* slice) {
  (void)self;
  return slice->length;
}

static gx_status encode(gx_codec* self, void* slot, const gx_slice* in, gx_buffer* out, gx_error* err) {
  toy* codec = self->private_data;
  toy_slot* state = slot;
  if (out->capacity < in->length) return fail(err, GX_ENOSPC, "too little room");
  for (uint64_t i = 0; i < in->length; ++i) {
    float* rest = &state->residual[in->offset + i];
    double level = nearbyint(*rest / codec->step);
    if (level > 127) level = 127;
    if (level < -127) level = -127;
    *rest -= (float)(level * codec->step);
    out->data[i] = (uint8_t)(int8_t)level;
  }
  out->size = codec->is_liar ? in->length + 1 : in->length;
  return GX_OK;
}

static gx_status decode(gx_codec* self, gx_bytes in, int accumulate, const gx_slice* to, gx_error* err) {
  toy* codec = self->private_data;
  float* values = to->data;
  if (in.size != to->length) return fail(err, GX_ECORRUPT, "a length that isn't the part's");
  for (uint64_t i = 0; i < in.size; ++i) {
    const float value = (float)((int8_t)in.data[i] * codec->step);
    values[i] = accumulate ? values[i] + value : value;
  }
  return GX_OK;
}

static gx_status give_back(gx_codec* self, void* slot, const gx_slice* slice, gx_bytes lost, gx_error* err) {
  toy_slot* state = slot;
  gx_slice to = *slice;
  to.data = state->residual + slice->offset;
  return decode(self, lost, 1, &to, err);
}

static gx_status save_slot(gx_codec* self, void* slot, gx_buffer* out, gx_error* err) {
  toy_slot* state = slot;
  (void)self;
  out->size = state->length * sizeof(float);
  if (out->capacity < out->size) return fail(err, GX_ENOSPC, "");
  memcpy(out->data, state->residual, out->size);
  return GX_OK;
}

static gx_status load_slot(gx_codec* self, void* slot, gx_bytes in, gx_error* err) {
  toy_slot* state = slot;
  (void)self;
  if (in.size != state->length * sizeof(float)) return fail(err, GX_ECORRUPT, "a state of another tensor");
  memcpy(state->residual, in.data, in.size);
  return GX_OK;
}

static void release(gx_codec* self) {
  toy* codec = self->private_data;
  codec->host->metric(codec->host, "toy.released", 1);
  free(codec);
}

static gx_status make(void* user, const gx_host* host, const gx_site* site, gx_params params, gx_codec* out,
                      gx_error* err) {
  toy* codec = calloc(1, sizeof(toy));
  (void)site;
  if (codec == NULL) return fail(err, GX_EINTERNAL, "no memory");
  codec->host = host;
  codec->step = 0.5;
  codec->is_liar = user != NULL;
  for (size_t i = 0; i < params.count; ++i) {
    if (strcmp(params.items[i].name, "step") == 0 && params.items[i].f > 0) {
      codec->step = params.items[i].f;
    } else {
      free(codec);
      snprintf(err->message, sizeof(err->message), "%s: expected a step above 0", params.items[i].name);
      return GX_EINVAL;
    }
  }
  out->struct_size = sizeof(*out);
  out->wire_id = GX_FOURCC('T', 'O', 'Y', '1');
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
  out->save_slot = save_slot;
  out->load_slot = load_slot;
  out->release = release;
  out->private_data = codec;
  return GX_OK;
}

static gx_status make_short(void* user, const gx_host* host, const gx_site* site, gx_params params, gx_codec* out,
                            gx_error* err) {
  (void)user, (void)host, (void)site, (void)params, (void)err;
  out->struct_size = 16;
  return GX_OK;
}

static gx_status make_empty(void* user, const gx_host* host, const gx_site* site, gx_params params, gx_codec* out,
                            gx_error* err) {
  (void)user, (void)host, (void)site, (void)params, (void)err;
  out->struct_size = sizeof(*out);
  return GX_OK;
}

gx_status geomx_plugin_v1(const gx_host* host, gx_registrar* registrar, gx_error* err) {
  static int lies;
  if (host->abi_version < 1) return fail(err, GX_EUNSUPPORTED, "a host older than time");
  host->log(host, 20, "toy is here");
  if (registrar->add_codec(registrar, "toy", make, NULL, err) != GX_OK) return GX_EINTERNAL;
  if (registrar->add_codec(registrar, "liar", make, &lies, err) != GX_OK) return GX_EINTERNAL;
  if (registrar->add_codec(registrar, "short", make_short, NULL, err) != GX_OK) return GX_EINTERNAL;
  return registrar->add_codec(registrar, "empty", make_empty, NULL, err);
}
