// Two codecs that send 16 bits for each value: "fp16" (IEEE half) and "bf16" (bfloat16). Nothing is remembered between
// rounds. The bytes are the halves in order, little-endian; a key that is declared in half precision keeps its own
// format, so its bytes are the same as without a codec.
//
// The conversions are the host's vectorised kernels; float64 goes through float32 a piece at a time.
#include <geomx/plugin.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <new>

namespace {

constexpr uint64_t piece = 4096;  // of float64 values that are converted at a time

struct Codec {
  const gx_host* host;
  gx_dtype format;
  int overflow;
  const char* metric;
};

gx_status fail(gx_error* error, gx_status status, const char* format, ...) {
  va_list words;
  va_start(words, format);
  std::vsnprintf(error->message, sizeof(error->message), format, words);
  va_end(words);
  return status;
}

const Codec& of(gx_codec* table) { return *static_cast<Codec*>(table->private_data); }

gx_dtype format_of(const Codec& codec, const gx_slice& slice) {
  return slice.dtype == GX_F16 || slice.dtype == GX_BF16 ? slice.dtype : codec.format;
}

uint64_t narrow(const Codec& codec, gx_dtype format, const float* values, uint8_t* halves, uint64_t n) {
  const gx_kernels& kernels = *codec.host->kernels;
  return (format == GX_F16 ? kernels.f32_to_f16 : kernels.f32_to_bf16)(values, halves, n, codec.overflow);
}

void widen(const Codec& codec, gx_dtype format, const uint8_t* halves, float* values, uint64_t n) {
  const gx_kernels& kernels = *codec.host->kernels;
  (format == GX_F16 ? kernels.f16_to_f32 : kernels.bf16_to_f32)(halves, values, n);
}

void add(const Codec& codec, gx_dtype format, const uint8_t* halves, float* sum, uint64_t n) {
  const gx_kernels& kernels = *codec.host->kernels;
  (format == GX_F16 ? kernels.add_f16 : kernels.add_bf16)(sum, halves, n);
}

uint64_t narrow_doubles(const Codec& codec, gx_dtype format, const double* values, uint8_t* halves, uint64_t n) {
  float singles[piece];
  uint64_t count = 0;
  for (uint64_t start = 0; start < n; start += piece) {
    const uint64_t length = std::min(piece, n - start);
    for (uint64_t i = 0; i < length; ++i) singles[i] = static_cast<float>(values[start + i]);
    count += narrow(codec, format, singles, halves + 2 * start, length);
  }
  return count;
}

void widen_doubles(const Codec& codec, gx_dtype format, const uint8_t* halves, double* values, uint64_t n,
                   bool is_added) {
  float singles[piece];
  for (uint64_t start = 0; start < n; start += piece) {
    const uint64_t length = std::min(piece, n - start);
    widen(codec, format, halves + 2 * start, singles, length);
    double* to = values + start;
    for (uint64_t i = 0; i < length; ++i) to[i] = is_added ? to[i] + static_cast<double>(singles[i]) : singles[i];
  }
}

uint64_t max_encoded_size(gx_codec*, const gx_slice* slice) { return 2 * slice->length; }

gx_status encode(gx_codec* table, void*, const gx_slice* in, gx_buffer* out, gx_error* error) {
  const Codec& codec = of(table);
  const uint64_t size = 2 * in->length;
  if (out->capacity < size) {
    out->size = size;
    return fail(error, GX_ENOSPC, "expected room for %llu bytes", static_cast<unsigned long long>(size));
  }
  const gx_dtype format = format_of(codec, *in);
  const uint64_t count =
      in->data_dtype == GX_F64
          ? narrow_doubles(codec, format, static_cast<const double*>(in->data), out->data, in->length)
          : narrow(codec, format, static_cast<const float*>(in->data), out->data, in->length);
  if (count != 0) codec.host->metric(codec.host, codec.metric, static_cast<double>(count));
  out->size = size;
  return GX_OK;
}

gx_status decode(gx_codec* table, gx_bytes in, int accumulate, const gx_slice* to, gx_error* error) {
  const Codec& codec = of(table);
  if (in.size != 2 * to->length) {
    return fail(error, GX_ECORRUPT, "expected %llu bytes for %llu values of 16 bits but got %llu",
                static_cast<unsigned long long>(2 * to->length), static_cast<unsigned long long>(to->length),
                static_cast<unsigned long long>(in.size));
  }
  const gx_dtype format = format_of(codec, *to);
  if (to->data_dtype == GX_F64) {
    widen_doubles(codec, format, in.data, static_cast<double*>(to->data), to->length, accumulate != 0);
  } else if (accumulate != 0) {
    add(codec, format, in.data, static_cast<float*>(to->data), to->length);
  } else {
    widen(codec, format, in.data, static_cast<float*>(to->data), to->length);
  }
  return GX_OK;
}

// Summed in float32 and rounded again. What would be too large goes on as it came: the server sums in float32.
gx_status merge(gx_codec* table, const gx_slice* part, const gx_bytes* in, size_t count, gx_buffer* out,
                gx_error* error) {
  const Codec& codec = of(table);
  const uint64_t size = 2 * part->length;
  for (size_t i = 0; i < count; ++i)
    if (in[i].size != size) {
      return fail(error, GX_ECORRUPT, "expected %llu bytes for %llu values of 16 bits but got %llu",
                  static_cast<unsigned long long>(size), static_cast<unsigned long long>(part->length),
                  static_cast<unsigned long long>(in[i].size));
    }
  out->size = size;
  if (out->capacity < size)
    return fail(error, GX_ENOSPC, "expected room for %llu bytes", static_cast<unsigned long long>(size));
  const gx_dtype format = format_of(codec, *part);
  float sum[piece];
  for (uint64_t start = 0; start < part->length; start += piece) {
    const uint64_t length = std::min(piece, part->length - start);
    std::fill_n(sum, length, 0.0f);
    for (size_t i = 0; i < count; ++i) add(codec, format, in[i].data + 2 * start, sum, length);
    if (narrow(codec, format, sum, out->data + 2 * start, length) != 0)
      return fail(error, GX_EUNSUPPORTED, "the sum is beyond the format's range");
  }
  return GX_OK;
}

void release(gx_codec* table) { delete static_cast<Codec*>(table->private_data); }

gx_status read_options(gx_params params, Codec* codec, gx_error* error) {
  for (size_t i = 0; i < params.count; ++i) {
    const gx_param& param = params.items[i];
    if (std::strcmp(param.name, "overflow") != 0) return fail(error, GX_EINVAL, "%s: no such option", param.name);
    if (param.kind == 's' && std::strcmp(param.s, "saturate") == 0) {
      codec->overflow = GX_SATURATE;
    } else if (param.kind == 's' && std::strcmp(param.s, "inf") == 0) {
      codec->overflow = GX_TO_INFINITY;
    } else {
      return fail(error, GX_EINVAL, "overflow: allowed are saturate and inf");
    }
  }
  return GX_OK;
}

// `user`: the codec's own name.
gx_status make(void* user, const gx_host* host, const gx_site*, gx_params params, gx_codec* out, gx_error* error) {
  const bool is_half = std::strcmp(static_cast<const char*>(user), "fp16") == 0;
  Codec codec = {host, static_cast<gx_dtype>(is_half ? GX_F16 : GX_BF16), GX_SATURATE,
                 is_half ? "fp16.overflow" : "bf16.overflow"};
  const gx_status status = read_options(params, &codec, error);
  if (status != GX_OK) return status;
  out->private_data = new (std::nothrow) Codec(codec);
  if (out->private_data == nullptr) return fail(error, GX_EINTERNAL, "no memory");
  out->struct_size = sizeof(gx_codec);
  out->wire_id = is_half ? GX_FOURCC('F', 'P', '1', '6') : GX_FOURCC('B', 'F', '1', '6');
  out->scope = GX_SCOPE_PART;
  out->caps = GX_CAN_MERGE | GX_CARRIES_GRADIENTS | GX_CARRIES_PARAMETERS | GX_CARRIES_DELTAS;
  out->dtypes = GX_DTYPE_BIT(GX_F32) | GX_DTYPE_BIT(GX_F64) | GX_DTYPE_BIT(GX_F16) | GX_DTYPE_BIT(GX_BF16);
  out->max_encoded_size = max_encoded_size;
  out->encode = encode;
  out->decode = decode;
  out->merge = merge;
  out->release = release;
  return GX_OK;
}

}  // namespace

extern "C" gx_status geomx_plugin_v1(const gx_host* host, gx_registrar* registrar, gx_error* error) {
  if (host->kernels == nullptr) return fail(error, GX_EUNSUPPORTED, "this GeoMX offers no kernels");
  static char half[] = "fp16", brain[] = "bf16";
  const gx_status status = registrar->add_codec(registrar, half, make, half, error);
  return status == GX_OK ? registrar->add_codec(registrar, brain, make, brain, error) : status;
}
