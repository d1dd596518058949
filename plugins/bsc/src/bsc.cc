// The codec "bsc": the largest elements of a tensor travel, the rest waits in a residual. Towards the servers one
// choice over the whole tensor, with momentum correction; away from them one choice over each server's shard. Of
// differences nothing is kept: what is left out is in the next one.
// What a slot keeps: the residual, the momentum, and between prepare and the last encode what was chosen.
#include <geomx/plugin.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>

#include "common.h"
#include "entries.h"
#include "select.h"

namespace bsc {
namespace {

constexpr uint64_t max_length = UINT32_MAX;  // positions have 32 bits
constexpr uint32_t state_magic = GX_FOURCC('B', 'S', 'S', '1');

struct Options {
  double ratio = 0.01, momentum = 0, warmup_ratio = 0.25;
  int64_t value_bits = 32, warmup_rounds = 0, seed = 1;
};

struct Codec {
  const gx_host* host;
  Options options;
  Scratch scratch;
  Entries entries;
  std::vector<float> wanted, sent;
  Chosen<float> spare;
  Chosen<double> spare_wide;
  Array difference = no_array();  // room that is used again
  uint64_t difference_bytes = 0;
};

// A slot's arrays are made by the first prepare, which says what its scope covers.
struct Slot {
  bool is_wide = false, has_momentum = false, has_warned = false, is_delta = false;
  uint64_t offset = 0, length = 0;
  Array residual = no_array(), momentum = no_array();  // float, or double where is_wide
  Chosen<float> chosen;
  Chosen<double> chosen_wide;

  uint64_t bytes() const { return length * (is_wide ? sizeof(double) : sizeof(float)); }
  bool covers(const gx_slice& part) const {
    return (residual != nullptr || is_delta) && part.offset >= offset && part.offset + part.length <= offset + length;
  }
  template <typename T>
  T* at(const Array& array) const {
    return reinterpret_cast<T*>(array.get());
  }
};

Codec& of(gx_codec* table) { return *static_cast<Codec*>(table->private_data); }

// ---- slots ---------------------------------------------------------------------------------------------------------

gx_status open_slot(gx_codec* table, const gx_slice* whole, void** slot, gx_error* error) {
  if (whole->tensor_length > max_length)
    return fail(error, GX_EUNSUPPORTED, "it takes tensors of up to %llu elements, this one has %llu",
                static_cast<unsigned long long>(max_length), static_cast<unsigned long long>(whole->tensor_length));
  return guarded(error, [&]() -> gx_status {
    auto made = std::make_unique<Slot>();
    made->is_wide = whole->data_dtype == GX_F64;
    made->has_momentum = whole->direction == GX_UP && of(table).options.momentum != 0;
    made->is_delta = whole->content == GX_DELTA;
    *slot = made.release();
    return GX_OK;
  });
}

void close_slot(gx_codec*, void* slot) { delete static_cast<Slot*>(slot); }

void allocate(Slot& slot, uint64_t offset, uint64_t length) {
  slot.offset = offset;
  slot.length = length;
  if (slot.is_delta) return;
  slot.residual = make_array(slot.bytes());
  slot.momentum = slot.has_momentum ? make_array(slot.bytes()) : no_array();
}

double ratio_in(const Options& options, uint32_t round) {
  const double rounds = double(options.warmup_rounds), from = std::max(options.warmup_ratio, options.ratio);
  if (double(round) > rounds || rounds == 0) return options.ratio;
  const double done = (double(round) - 1) / rounds;
  return std::pow(from, 1 - done) * std::pow(options.ratio, done);
}

// At least one, and all where the ratio is 1.
uint64_t count_in(double ratio, uint64_t length) {
  const double wanted = std::ceil(ratio * double(length) - 1e-9 * double(length));
  return std::clamp<uint64_t>(uint64_t(wanted), std::min<uint64_t>(length, 1), length);
}

// Zeros, to which the difference is added.
uint8_t* room_for_difference(Codec& codec, uint64_t bytes) {
  if (codec.difference_bytes < bytes) {
    codec.difference = no_array();
    codec.difference = make_array(bytes);
    codec.difference_bytes = bytes;
  }
  std::memset(codec.difference.get(), 0, bytes);
  return codec.difference.get();
}

template <typename T>
uint64_t choose(Codec& codec, Slot& slot, const gx_slice& whole, Chosen<T>& spare, Chosen<T>& chosen) {
  State<T> state = {slot.at<T>(slot.momentum), slot.at<T>(slot.residual), slot.length};
  if (slot.is_delta && slot.length != 0)
    state.residual = reinterpret_cast<T*>(room_for_difference(codec, slot.bytes()));
  Random random(uint64_t(codec.options.seed) * 0x2545f4914f6cdd1du ^ whole.key << 32 ^ whole.offset ^
                uint64_t(whole.round) << 8 ^ whole.direction);
  const uint64_t count = count_in(ratio_in(codec.options, whole.round), slot.length);
  return update_and_select(state, static_cast<const T*>(whole.data), T(codec.options.momentum), count, random, spare,
                           chosen);
}

void report(const Codec& codec, Slot& slot, const gx_slice& whole, uint64_t num_infinite) {
  if (num_infinite == 0) return;
  codec.host->metric(codec.host, "bsc.not_finite", double(num_infinite));
  if (slot.has_warned) return;
  slot.has_warned = true;
  char text[200];
  std::snprintf(
      text, sizeof(text),
      "bsc: %llu of %llu values of key %llu are NaN or infinite in round %u; they count as 0 (said once a key)",
      static_cast<unsigned long long>(num_infinite), static_cast<unsigned long long>(whole.length),
      static_cast<unsigned long long>(whole.key), whole.round);
  codec.host->log(codec.host, 30, text);
}

gx_status prepare(gx_codec* table, void* memory, const gx_slice* whole, gx_error* error) {
  return guarded(error, [&]() -> gx_status {
    Codec& codec = of(table);
    Slot& slot = *static_cast<Slot*>(memory);
    if (slot.residual == nullptr && (!slot.is_delta || slot.length == 0)) allocate(slot, whole->offset, whole->length);
    if (slot.offset != whole->offset || slot.length != whole->length)
      return fail(error, GX_EINVAL, "expected elements %llu to %llu of the tensor but got another range",
                  static_cast<unsigned long long>(slot.offset),
                  static_cast<unsigned long long>(slot.offset + slot.length));
    const uint64_t num_infinite = slot.is_wide ? choose(codec, slot, *whole, codec.spare_wide, slot.chosen_wide)
                                               : choose(codec, slot, *whole, codec.spare, slot.chosen);
    report(codec, slot, *whole, num_infinite);
    return GX_OK;
  });
}

// ---- parts ---------------------------------------------------------------------------------------------------------

uint64_t max_encoded_size(gx_codec*, const gx_slice* part) { return max_size(part->length); }

Width width_of(const Options& options, const gx_slice& part) {
  const bool is_half = part.dtype == GX_F16 || part.dtype == GX_BF16;
  if (options.value_bits == 8) return Width::byte;
  return is_half || options.value_bits == 16 ? Width::half : Width::single;
}

// What was chosen of this part leaves; what rounding changed of it stays.
template <typename T>
uint64_t encode_part(Codec& codec, Slot& slot, const Chosen<T>& chosen, const gx_slice& part, uint8_t* out) {
  const uint64_t start = part.offset - slot.offset;
  const auto first = std::lower_bound(chosen.positions.begin(), chosen.positions.end(), start);
  const auto last = std::lower_bound(first, chosen.positions.end(), start + part.length);
  const uint64_t begin = uint64_t(first - chosen.positions.begin()), count = uint64_t(last - first);
  codec.entries.positions.assign(first, last);
  if (start != 0)
    for (uint32_t& position : codec.entries.positions) position = uint32_t(position - start);
  codec.wanted.resize(count);
  codec.sent.resize(count);
  std::copy_n(chosen.values.begin() + ptrdiff_t(begin), count, codec.wanted.begin());
  const uint64_t size =
      write(codec.entries.positions.data(), codec.wanted.data(), count, part.length, width_of(codec.options, part),
            *codec.host->kernels, codec.scratch, codec.sent.data(), out);
  if (slot.is_delta) return size;
  T* residual = slot.at<T>(slot.residual);
  for (uint64_t i = 0; i < count; ++i) residual[first[ptrdiff_t(i)]] = chosen.values[begin + i] - T(codec.sent[i]);
  if (T* momentum = slot.at<T>(slot.momentum))
    for (uint64_t i = 0; i < count; ++i) momentum[first[ptrdiff_t(i)]] = 0;
  return size;
}

gx_status encode(gx_codec* table, void* memory, const gx_slice* in, gx_buffer* out, gx_error* error) {
  return guarded(error, [&]() -> gx_status {
    Codec& codec = of(table);
    Slot& slot = *static_cast<Slot*>(memory);
    const uint64_t needed = max_size(in->length);
    if (out->capacity < needed) {
      out->size = needed;
      return fail(error, GX_ENOSPC, "expected room for %llu bytes", static_cast<unsigned long long>(needed));
    }
    if (!slot.covers(*in))
      return fail(error, GX_EINVAL,
                  "a part lies outside of what was prepared: the parts of a server's shard must follow "
                  "each other");
    out->size = slot.is_wide ? encode_part(codec, slot, slot.chosen_wide, *in, out->data)
                             : encode_part(codec, slot, slot.chosen, *in, out->data);
    return GX_OK;
  });
}

gx_status refuse(gx_error* error, const char* why) {
  return fail(error, GX_ECORRUPT, "a sparse part is wrong: %s", why);
}

// The memory of later entries is fetched meanwhile.
template <typename T>
void add(const Entries& entries, T* to) {
  const uint32_t* positions = entries.positions.data();
  const float* values = entries.values.data();
  const size_t count = entries.size();
  for (size_t i = 0; i < count; ++i) to[positions[i]] += T(values[i]);
}

gx_status decode(gx_codec* table, gx_bytes in, int accumulate, const gx_slice* to, gx_error* error) {
  return guarded(error, [&]() -> gx_status {
    Codec& codec = of(table);
    if (to->length > max_length) return fail(error, GX_EUNSUPPORTED, "the part is too long");
    const bool is_wide = to->data_dtype == GX_F64;
    const uint64_t width = is_wide ? sizeof(double) : sizeof(float);
    if (const char* why = read(in, to->length, *codec.host->kernels, codec.scratch, codec.entries, to->data, width))
      return refuse(error, why);
    if (accumulate == 0 && to->length != 0) std::memset(to->data, 0, to->length * width);
    if (is_wide)
      add(codec.entries, static_cast<double*>(to->data));
    else
      add(codec.entries, static_cast<float*>(to->data));
    return GX_OK;
  });
}

gx_status give_back(gx_codec* table, void* memory, const gx_slice* part, gx_bytes lost, gx_error* error) {
  Slot& slot = *static_cast<Slot*>(memory);
  if (slot.residual == nullptr || !slot.covers(*part))
    return fail(error, GX_EINVAL, "nothing was sent of what is given back");
  gx_slice into = *part;
  const uint64_t start = part->offset - slot.offset;
  into.data_dtype = slot.is_wide ? GX_F64 : GX_F32;
  into.data = slot.is_wide ? static_cast<void*>(slot.at<double>(slot.residual) + start)
                           : static_cast<void*>(slot.at<float>(slot.residual) + start);
  return decode(table, lost, 1, &into, error);
}

// The union of all positions, values added in float32 in the order of the parts and written in 32 bits: exact.
gx_status merge(gx_codec* table, const gx_slice* part, const gx_bytes* in, size_t count, gx_buffer* out,
                gx_error* error) {
  return guarded(error, [&]() -> gx_status {
    Codec& codec = of(table);
    const uint64_t needed = max_size(part->length);
    if (out->capacity < needed) {
      out->size = needed;
      return fail(error, GX_ENOSPC, "expected room for %llu bytes", static_cast<unsigned long long>(needed));
    }
    Entries sum, next;
    for (size_t i = 0; i < count; ++i) {
      if (const char* why = read(in[i], part->length, *codec.host->kernels, codec.scratch, codec.entries))
        return refuse(error, why);
      const Entries& more = codec.entries;
      next.resize(sum.size() + more.size());
      size_t a = 0, b = 0, filled = 0;
      while (a < sum.size() || b < more.size()) {
        const bool has_a = a < sum.size() && (b == more.size() || sum.positions[a] <= more.positions[b]);
        const bool has_b = b < more.size() && (a == sum.size() || more.positions[b] <= sum.positions[a]);
        next.positions[filled] = has_a ? sum.positions[a] : more.positions[b];
        const float value = has_a && has_b ? sum.values[a] + more.values[b] : has_a ? sum.values[a] : more.values[b];
        next.values[filled++] =
            std::clamp(value, -std::numeric_limits<float>::max(), std::numeric_limits<float>::max());
        a += has_a;
        b += has_b;
      }
      next.resize(filled);
      std::swap(sum, next);
    }
    codec.sent.resize(sum.size());
    out->size = write(sum.positions.data(), sum.values.data(), sum.size(), part->length, Width::single,
                      *codec.host->kernels, codec.scratch, codec.sent.data(), out->data);
    return GX_OK;
  });
}

gx_status score(gx_codec* table, const gx_slice* part, gx_bytes in, double* contribution, gx_error* error) {
  return guarded(error, [&]() -> gx_status {
    Codec& codec = of(table);
    if (const char* why = read(in, part->length, *codec.host->kernels, codec.scratch, codec.entries))
      return refuse(error, why);
    *contribution = codec.host->kernels->abs_sum_f32(codec.entries.values.data(), codec.entries.size());
    return GX_OK;
  });
}

// ---- a slot at rest ------------------------------------------------------------------------------------------------

struct Saved {
  uint32_t magic;
  uint8_t is_wide, has_momentum, is_used, reserved;
  uint64_t offset, length;
};

gx_status save_slot(gx_codec*, void* memory, gx_buffer* out, gx_error* error) {
  const Slot& slot = *static_cast<const Slot*>(memory);
  const bool is_used = slot.residual != nullptr;
  const Saved head = {state_magic, slot.is_wide, slot.has_momentum, is_used, 0, slot.offset, slot.length};
  const uint64_t bytes = is_used ? slot.bytes() : 0;
  out->size = sizeof(head) + bytes * (slot.has_momentum ? 2 : 1);
  if (out->capacity < out->size) return fail(error, GX_ENOSPC, "more room is needed");
  std::memcpy(out->data, &head, sizeof(head));
  if (bytes == 0) return GX_OK;
  std::memcpy(out->data + sizeof(head), slot.residual.get(), bytes);
  if (slot.has_momentum) std::memcpy(out->data + sizeof(head) + bytes, slot.momentum.get(), bytes);
  return GX_OK;
}

template <typename T>
bool are_finite(const uint8_t* bytes, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    if (!std::isfinite(value)) return false;
  }
  return true;
}

gx_status load_slot(gx_codec*, void* memory, gx_bytes in, gx_error* error) {
  return guarded(error, [&]() -> gx_status {
    Slot& slot = *static_cast<Slot*>(memory);
    Saved head;
    if (in.size < sizeof(head)) return fail(error, GX_ECORRUPT, "a saved slot is cut short");
    std::memcpy(&head, in.data, sizeof(head));
    if (head.magic != state_magic) return fail(error, GX_ECORRUPT, "these bytes are no saved slot of bsc");
    if (head.is_wide != slot.is_wide || head.has_momentum != slot.has_momentum || (head.is_used && slot.is_delta))
      return fail(error, GX_EINVAL, "a slot was saved with another type, or with%s momentum",
                  slot.has_momentum ? "out" : "");
    const uint64_t width = slot.is_wide ? sizeof(double) : sizeof(float), arrays = slot.has_momentum ? 2 : 1;
    const uint64_t wanted = head.is_used ? head.length : 0;
    if (head.length > max_length || in.size != sizeof(head) + arrays * wanted * width)
      return fail(error, GX_ECORRUPT, "a saved slot has %llu bytes, which is wrong",
                  static_cast<unsigned long long>(in.size));
    const uint8_t* values = in.data + sizeof(head);
    if (!(slot.is_wide ? are_finite<double>(values, arrays * wanted) : are_finite<float>(values, arrays * wanted)))
      return fail(error, GX_ECORRUPT, "a saved slot holds NaN or infinity");
    slot.chosen.resize(0);
    slot.chosen_wide.resize(0);
    slot.residual.reset();
    slot.momentum.reset();
    if (!head.is_used) return GX_OK;
    allocate(slot, head.offset, head.length);
    if (slot.bytes() == 0) return GX_OK;
    std::memcpy(slot.residual.get(), values, slot.bytes());
    if (slot.has_momentum) std::memcpy(slot.momentum.get(), values + slot.bytes(), slot.bytes());
    return GX_OK;
  });
}

void release(gx_codec* table) { delete static_cast<Codec*>(table->private_data); }

// ---- options -------------------------------------------------------------------------------------------------------

gx_status read_real(const gx_param& param, double low, bool is_low_in, double high, bool is_high_in, double* out,
                    gx_error* error) {
  const double value = param.kind == 'i' ? double(param.i) : param.f;
  const bool is_right =
      param.kind != 's' && (is_low_in ? value >= low : value > low) && (is_high_in ? value <= high : value < high);
  if (!is_right)
    return fail(error, GX_EINVAL, "%s: allowed is a number %s %g and %s %g", param.name,
                is_low_in ? "at least" : "above", low, is_high_in ? "at most" : "below", high);
  *out = value;
  return GX_OK;
}

gx_status read_option(const gx_param& param, Options* options, gx_error* error) {
  const auto is = [&](const char* name) { return std::strcmp(param.name, name) == 0; };
  if (is("ratio")) return read_real(param, 0, false, 1, true, &options->ratio, error);
  if (is("warmup_ratio")) return read_real(param, 0, false, 1, true, &options->warmup_ratio, error);
  if (is("momentum")) return read_real(param, 0, true, 1, false, &options->momentum, error);
  if (is("value_bits")) {
    if (param.kind != 'i' || (param.i != 8 && param.i != 16 && param.i != 32))
      return fail(error, GX_EINVAL, "value_bits: allowed are 32, 16 and 8");
    options->value_bits = param.i;
    return GX_OK;
  }
  if (!is("warmup_rounds") && !is("seed")) return fail(error, GX_EINVAL, "%s: no such option", param.name);
  if (param.kind != 'i' || param.i < 0)
    return fail(error, GX_EINVAL, "%s: allowed is a whole number at least 0", param.name);
  (is("seed") ? options->seed : options->warmup_rounds) = param.i;
  return GX_OK;
}

gx_status make(void*, const gx_host* host, const gx_site* site, gx_params params, gx_codec* out, gx_error* error) {
  return guarded(error, [&]() -> gx_status {
    Options options;
    for (size_t i = 0; i < params.count; ++i) {
      const gx_status status = read_option(params.items[i], &options, error);
      if (status != GX_OK) return status;
    }
    // Weights come back: the servers' optimizer has the momentum, if any.
    if (site->struct_size > offsetof(gx_site, answer) && site->answer == GX_PARAMETER) options.momentum = 0;
    auto codec = std::make_unique<Codec>();
    codec->host = host;
    codec->options = options;
    out->private_data = codec.release();
    out->struct_size = sizeof(gx_codec);
    out->wire_id = GX_FOURCC('B', 'S', 'C', '1');
    out->scope = GX_SCOPE_TENSOR;
    out->caps = GX_KEEPS_RESIDUAL | GX_CAN_MERGE | GX_CARRIES_GRADIENTS | GX_CARRIES_DELTAS;
    out->dtypes = GX_DTYPE_BIT(GX_F32) | GX_DTYPE_BIT(GX_F64) | GX_DTYPE_BIT(GX_F16) | GX_DTYPE_BIT(GX_BF16);
    out->open_slot = open_slot;
    out->close_slot = close_slot;
    out->prepare = prepare;
    out->max_encoded_size = max_encoded_size;
    out->encode = encode;
    out->decode = decode;
    out->merge = merge;
    out->score = score;
    out->give_back = give_back;
    out->save_slot = save_slot;
    out->load_slot = load_slot;
    out->release = release;
    return GX_OK;
  });
}

}  // namespace
}  // namespace bsc

extern "C" gx_status geomx_plugin_v1(const gx_host* host, gx_registrar* registrar, gx_error* error) {
  if (host->kernels == nullptr) return bsc::fail(error, GX_EUNSUPPORTED, "this GeoMX offers no kernels");
  const gx_status status = registrar->add_codec(registrar, "bsc", bsc::make, nullptr, error);
  return status == GX_OK ? registrar->add_codec(registrar, "bsc-original", bsc::make_original, nullptr, error) : status;
}
