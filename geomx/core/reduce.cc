// The kernels behind reduce.h, compiled once for each instruction set (Highway includes this file again and again) and
// chosen at run time. Built with -ffp-contract=off, and with no fused multiply-add of its own, so that a sum has the
// same bits wherever it is made.
#include "reduce.h"

#include <cstring>

// Machines with SSSE3 and without SSE4 are not worth their compile time.
#define HWY_DISABLED_TARGETS HWY_SSSE3
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/reduce.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace geomx {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Highway emulates half precision where the processor lacks it, but truncates; our own emulation rounds.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
constexpr bool has_native_halves = true;
#else
constexpr bool has_native_halves = false;
#endif

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const void* from) {
#if HWY_TARGET == HWY_SCALAR
  hn::TFromD<D> value;  // a scalar target's LoadU is a plain dereference, which wants alignment
  std::memcpy(&value, from, sizeof(value));
  return hn::Set(d, value);
#else
  return hn::LoadU(d, static_cast<const hn::TFromD<D>*>(from));
#endif
}

template <class D>
HWY_INLINE void store(hn::Vec<D> vector, [[maybe_unused]] D d, void* to) {
#if HWY_TARGET == HWY_SCALAR
  const hn::TFromD<D> value = hn::GetLane(vector);
  std::memcpy(to, &value, sizeof(value));
#else
  hn::StoreU(vector, d, static_cast<hn::TFromD<D>*>(to));
#endif
}

template <class D>
HWY_INLINE hn::Vec<D> load_some(D d, const void* from, size_t count) {
  if (hn::MaxLanes(d) == 1) return count == 0 ? hn::Zero(d) : load(d, from);
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(d)] = {};
  if (count != 0) std::memcpy(lanes, from, count * sizeof(lanes[0]));
  return hn::Load(d, lanes);
}

template <class D>
HWY_INLINE void store_some(hn::Vec<D> vector, D d, void* to, size_t count) {
  if (hn::MaxLanes(d) == 1) {
    if (count != 0) store(vector, d, to);
    return;
  }
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(d)];
  hn::Store(vector, d, lanes);
  if (count != 0) std::memcpy(to, lanes, count * sizeof(lanes[0]));
}

// ---- sums ----------------------------------------------------------------------------------------------------------

// sum = base + values; base may be sum itself.
template <typename T>
HWY_INLINE void add(T* sum, const void* base, const void* values, size_t n) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  const T* to = static_cast<const T*>(base);
  const T* from = static_cast<const T*>(values);
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const auto a = hn::Add(load(d, to + i), load(d, from + i));
    const auto b = hn::Add(load(d, to + i + lanes), load(d, from + i + lanes));
    const auto c = hn::Add(load(d, to + i + 2 * lanes), load(d, from + i + 2 * lanes));
    const auto e = hn::Add(load(d, to + i + 3 * lanes), load(d, from + i + 3 * lanes));
    hn::StoreU(a, d, sum + i);
    hn::StoreU(b, d, sum + i + lanes);
    hn::StoreU(c, d, sum + i + 2 * lanes);
    hn::StoreU(e, d, sum + i + 3 * lanes);
  }
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Add(load(d, to + i), load(d, from + i)), d, sum + i);
  const size_t rest = n - i;
  store_some(hn::Add(load_some(d, to + i, rest), load_some(d, from + i, rest)), d, sum + i, rest);
}

void sum_f32(float* sum, const void* a, const void* b, size_t n) { add(sum, a, b, n); }
void add_f32(float* sum, const void* values, size_t n) { add(sum, sum, values, n); }
void add_f64(double* sum, const void* values, size_t n) { add(sum, sum, values, n); }
void add_i32(int32_t* sum, const void* values, size_t n) { add(sum, sum, values, n); }
void add_i64(int64_t* sum, const void* values, size_t n) { add(sum, sum, values, n); }
void add_u8(uint8_t* sum, const void* values, size_t n) { add(sum, sum, values, n); }

// ---- half precision ------------------------------------------------------------------------------------------------

// A format of 16 bits: how a vector of float32 becomes one of its bit patterns, and back. `largest` is its largest
// finite value as float32 bits; from `overflow` on, rounding would give infinity.
struct Float16 {
  static constexpr int32_t largest = 0x477fe000;   // 65504
  static constexpr int32_t overflow = 0x477ff000;  // 65520

  template <class DF, class VF>
  static HWY_INLINE auto narrow(DF df, VF v) {
    const hn::Rebind<uint16_t, DF> dh;
    if constexpr (has_native_halves) {
      return hn::BitCast(dh, hn::DemoteTo(hn::Rebind<hwy::float16_t, DF>(), v));
    } else {
      const hn::RebindToSigned<DF> di;
      const auto bits = hn::BitCast(di, v);
      const auto magnitude = hn::And(bits, hn::Set(di, 0x7fffffff));
      const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(di, 0x8000));
      const auto is_odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 1));
      const auto rounded = hn::Add(hn::Add(magnitude, hn::Set(di, 0xfff - 0x38000000)), is_odd);
      const auto normal = hn::ShiftRight<13>(rounded);
      // One unit in the last place of 0.5 is the smallest half: the adder does the rounding.
      const auto half = hn::Set(df, 0.5f);
      const auto tiny = hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(df, magnitude), half)), hn::BitCast(di, half));
      const auto nan = hn::Or(hn::Set(di, 0x7e00), hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 0x3ff)));
      const auto infinity = hn::Set(di, 0x7f800000);
      const auto special = hn::IfThenElse(hn::Gt(magnitude, infinity), nan, hn::Set(di, 0x7c00));
      const auto finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x38800000)), tiny, normal);
      const auto result = hn::IfThenElse(hn::Lt(magnitude, infinity), finite, special);
      return hn::DemoteTo(dh, hn::Or(result, sign));
    }
  }

  template <class DF, class VH>
  static HWY_INLINE hn::Vec<DF> widen(DF df, VH halves) {
    if constexpr (has_native_halves) {
      return hn::PromoteTo(df, hn::BitCast(hn::Rebind<hwy::float16_t, DF>(), halves));
    } else {
      const hn::RebindToSigned<DF> di;
      const auto bits = hn::BitCast(di, hn::PromoteTo(hn::RebindToUnsigned<DF>(), halves));
      const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(di, 0x8000)));
      const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(di, 0x7fff)));
      const auto normal = hn::Add(magnitude, hn::Set(di, 0x38000000));
      const auto infinity = hn::Set(di, 0x0f800000);
      const auto quiet = hn::IfThenElseZero(hn::Gt(magnitude, infinity), hn::Set(di, 0x00400000));
      const auto special = hn::Or(hn::Add(magnitude, hn::Set(di, 0x70000000)), quiet);
      const auto base = hn::Set(di, 0x38800000);
      const auto tiny = hn::BitCast(di, hn::Sub(hn::BitCast(df, hn::Add(magnitude, base)), hn::BitCast(df, base)));
      const auto finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x00800000)), tiny, normal);
      return hn::BitCast(df, hn::Or(hn::IfThenElse(hn::Lt(magnitude, infinity), finite, special), sign));
    }
  }
};

struct Bfloat16 {
  static constexpr int32_t largest = 0x7f7f0000;
  static constexpr int32_t overflow = 0x7f7f8000;

  template <class DF, class VF>
  static HWY_INLINE auto narrow(DF df, VF v) {
    (void)df;
    const hn::RebindToUnsigned<DF> du;
    const auto bits = hn::BitCast(du, v);
    const auto is_odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fff)), is_odd);
    const auto nan = hn::Or(bits, hn::Set(du, 0x00400000));
    const auto result = hn::IfThenElse(hn::RebindMask(du, hn::Eq(v, v)), rounded, nan);
    const hn::RebindToSigned<DF> di;
    return hn::DemoteTo(hn::Rebind<uint16_t, DF>(), hn::BitCast(di, hn::ShiftRight<16>(result)));
  }

  template <class DF, class VH>
  static HWY_INLINE hn::Vec<DF> widen(DF df, VH halves) {
    return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<DF>(), halves)));
  }
};

// Replaces what is too large for the format.
template <class Format, Overflow overflow, class DF, class VF>
HWY_INLINE VF bounded(DF df, VF v, size_t* count) {
  const hn::RebindToSigned<DF> di;
  const auto infinity = hn::Set(di, 0x7f800000);
  const auto bits = hn::BitCast(di, v);
  const auto magnitude = hn::And(bits, hn::Set(di, 0x7fffffff));
  const auto sign = hn::AndNot(hn::Set(di, 0x7fffffff), bits);
  const auto is_nan = hn::Gt(magnitude, infinity);
  const auto is_over = hn::AndNot(is_nan, hn::Gt(magnitude, hn::Set(di, Format::overflow - 1)));
  if constexpr (overflow == Overflow::saturate) {
    const auto clamped = hn::IfThenElse(is_nan, magnitude, hn::Min(magnitude, hn::Set(di, Format::largest)));
    *count += hn::CountTrue(di, is_over);
    return hn::BitCast(df, hn::Or(clamped, sign));
  } else {
    *count += hn::CountTrue(di, hn::And(is_over, hn::Lt(magnitude, infinity)));
    return hn::BitCast(df, hn::Or(hn::IfThenElse(is_over, infinity, magnitude), sign));
  }
}

template <class Format, Overflow overflow>
HWY_INLINE size_t narrow_some(const float* values, uint8_t* halves, size_t n) {
  const hn::ScalableTag<float> df;
  const hn::Rebind<uint16_t, decltype(df)> dh;
  const size_t lanes = hn::Lanes(df);
  size_t saturated = 0;
  for (size_t i = 0; i < n; i += lanes) {
    const size_t count = n - i < lanes ? n - i : lanes;
    const auto v = bounded<Format, overflow>(df, load_some(df, values + i, count), &saturated);
    store_some(Format::narrow(df, v), dh, halves + 2 * i, count);
  }
  return saturated;
}

// Two vectors of float32 give one of halves, which a cache line takes whole: that is what streaming stores need.
template <class Format, Overflow overflow, bool is_streamed>
HWY_INLINE size_t narrow_pairs(const float* values, uint8_t* halves, size_t n, size_t* saturated) {
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<uint16_t, decltype(df)> dh;
  const size_t lanes = hn::Lanes(df);
  const auto magnitude_mask = hn::Set(di, 0x7fffffff);
  const auto largest = hn::Set(di, Format::largest);
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    auto a = hn::LoadU(df, values + i);
    auto b = hn::LoadU(df, values + i + lanes);
    const auto greatest =
        hn::Max(hn::And(hn::BitCast(di, a), magnitude_mask), hn::And(hn::BitCast(di, b), magnitude_mask));
    if (HWY_UNLIKELY(!hn::AllFalse(di, hn::Gt(greatest, largest)))) {
      a = bounded<Format, overflow>(df, a, saturated);
      b = bounded<Format, overflow>(df, b, saturated);
    }
    const auto low = Format::narrow(df, a), high = Format::narrow(df, b);
#if HWY_TARGET == HWY_SCALAR
    store(low, dh, halves + 2 * i);
    store(high, dh, halves + 2 * (i + lanes));
#else
    const hn::ScalableTag<uint16_t> pair;
    if constexpr (is_streamed) {
      hn::Stream(hn::Combine(pair, high, low), pair, reinterpret_cast<uint16_t*>(halves + 2 * i));
    } else {
      store(low, dh, halves + 2 * i);
      store(high, dh, halves + 2 * (i + lanes));
    }
#endif
  }
  return i;
}

// Above this many elements the halves don't stay in the caches anyway, so they are written past them, which saves
// reading the lines first.
constexpr size_t streaming_elements = size_t{1} << 22;

template <class Format, Overflow overflow>
HWY_INLINE size_t narrow_all(const float* values, void* to, size_t n) {
  uint8_t* halves = static_cast<uint8_t*>(to);
  const size_t line = HWY_TARGET == HWY_SCALAR ? 2 : sizeof(uint16_t) * hn::Lanes(hn::ScalableTag<uint16_t>());
  const size_t misaligned = reinterpret_cast<uintptr_t>(halves) % line;
  size_t saturated = 0, done = 0;
  if (n >= streaming_elements && misaligned % 2 == 0) {
    const size_t head = misaligned == 0 ? 0 : (line - misaligned) / 2;
    saturated += narrow_some<Format, overflow>(values, halves, head);
    done = head + narrow_pairs<Format, overflow, true>(values + head, halves + 2 * head, n - head, &saturated);
    hwy::FlushStream();
  } else {
    done = narrow_pairs<Format, overflow, false>(values, halves, n, &saturated);
  }
  return saturated + narrow_some<Format, overflow>(values + done, halves + 2 * done, n - done);
}

template <class Format>
HWY_INLINE void widen_all(const void* from, float* values, size_t n) {
  const hn::ScalableTag<float> df;
  const hn::Rebind<uint16_t, decltype(df)> dh;
  const size_t lanes = hn::Lanes(df);
  const uint8_t* halves = static_cast<const uint8_t*>(from);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(Format::widen(df, load(dh, halves + 2 * i)), df, values + i);
  }
  store_some(Format::widen(df, load_some(dh, halves + 2 * i, n - i)), df, values + i, n - i);
}

template <class Format>
HWY_INLINE void add_widened(float* sum, const void* from, size_t n) {
  const hn::ScalableTag<float> df;
  const hn::Rebind<uint16_t, decltype(df)> dh;
  const size_t lanes = hn::Lanes(df);
  const uint8_t* halves = static_cast<const uint8_t*>(from);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(df, sum + i), Format::widen(df, load(dh, halves + 2 * i))), df, sum + i);
  }
  const auto rest = Format::widen(df, load_some(dh, halves + 2 * i, n - i));
  store_some(hn::Add(load_some(df, sum + i, n - i), rest), df, sum + i, n - i);
}

template <class Format>
HWY_INLINE size_t narrow_as(const float* values, void* halves, size_t n, Overflow overflow) {
  return overflow == Overflow::saturate ? narrow_all<Format, Overflow::saturate>(values, halves, n)
                                        : narrow_all<Format, Overflow::infinity>(values, halves, n);
}

size_t f32_to_f16(const float* values, void* halves, size_t n, Overflow overflow) {
  return narrow_as<Float16>(values, halves, n, overflow);
}
size_t f32_to_bf16(const float* values, void* halves, size_t n, Overflow overflow) {
  return narrow_as<Bfloat16>(values, halves, n, overflow);
}
void f16_to_f32(const void* halves, float* values, size_t n) { widen_all<Float16>(halves, values, n); }
void bf16_to_f32(const void* halves, float* values, size_t n) { widen_all<Bfloat16>(halves, values, n); }
void add_f16_to_f32(float* sum, const void* halves, size_t n) { add_widened<Float16>(sum, halves, n); }
void add_bf16_to_f32(float* sum, const void* halves, size_t n) { add_widened<Bfloat16>(sum, halves, n); }

// ---- steps over several arrays -------------------------------------------------------------------------------------

// step(i, count) for each vector of the arrays, count below the vector's length only in the last. Once inlined, whole
// vectors are read and written without a branch.
template <class Step>
HWY_INLINE void walk(size_t n, size_t lanes, const Step& step) {
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) step(i, lanes);
  if (i < n) step(i, n - i);
}

template <class D>
HWY_INLINE hn::Vec<D> read(D d, const float* from, size_t count) {
  return count == hn::Lanes(d) ? hn::LoadU(d, from) : load_some(d, from, count);
}

template <class D>
HWY_INLINE void write(hn::Vec<D> vector, D d, float* to, size_t count) {
  if (count == hn::Lanes(d)) {
    hn::StoreU(vector, d, to);
  } else {
    store_some(vector, d, to, count);
  }
}

void scale_f32(float* values, float factor, size_t n) {
  const hn::ScalableTag<float> d;
  walk(n, hn::Lanes(d), [&](size_t i, size_t count) HWY_ATTR {
    write(hn::Mul(read(d, values + i, count), hn::Set(d, factor)), d, values + i, count);
  });
}

double abs_sum_f32(const void* from, size_t n) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const float* values = static_cast<const float*>(from);
  constexpr size_t chunk = 8192;  // short enough for float32 accumulators
  double total = 0;
  for (size_t start = 0; start < n; start += chunk) {
    const size_t end = n - start < chunk ? n : start + chunk;
    auto sum = hn::Zero(d);
    size_t i = start;
    for (; i + lanes <= end; i += lanes) sum = hn::Add(sum, hn::Abs(load(d, values + i)));
    sum = hn::Add(sum, hn::Abs(load_some(d, values + i, end - i)));
    total += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
  }
  return total;
}

template <class D>
HWY_INLINE hn::Vec<D> scaled(D d, hn::Vec<D> gradient, const GradientScale& scale) {
  const auto g = hn::Mul(gradient, hn::Set(d, scale.rescale));
  if (scale.clip < 0.0f) return g;
  // Comparisons, not Min and Max: those turn NaN into the bound on some processors.
  const auto low = hn::Set(d, -scale.clip), high = hn::Set(d, scale.clip);
  return hn::IfThenElse(hn::Gt(g, high), high, hn::IfThenElse(hn::Lt(g, low), low, g));
}

// weight - descent, by way of the velocity where there is one.
template <class D>
HWY_INLINE hn::Vec<D> descended(D d, hn::Vec<D> weight, hn::Vec<D> descent, float* velocity, float momentum,
                                size_t count) {
  if (velocity == nullptr) return hn::Sub(weight, descent);
  const auto v = hn::Sub(hn::Mul(hn::Set(d, momentum), read(d, velocity, count)), descent);
  write(v, d, velocity, count);
  return hn::Add(weight, v);
}

void sgd_step(float* weight, float* velocity, const float* gradient, size_t n, const SgdStep& step) {
  const hn::ScalableTag<float> d;
  const auto rate = hn::Set(d, step.learning_rate), decay = hn::Set(d, step.scale.weight_decay);
  walk(n, hn::Lanes(d), [&](size_t i, size_t count) HWY_ATTR {
    const auto w = read(d, weight + i, count);
    const auto g = hn::Add(scaled(d, read(d, gradient + i, count), step.scale), hn::Mul(decay, w));
    float* velocity_here = velocity == nullptr ? nullptr : velocity + i;
    write(descended(d, w, hn::Mul(rate, g), velocity_here, step.momentum, count), d, weight + i, count);
  });
}

void adam_step(float* weight, float* mean, float* variance, const float* gradient, size_t n, const AdamStep& step) {
  const hn::ScalableTag<float> d;
  const auto rate = hn::Set(d, step.learning_rate), decay = hn::Set(d, step.scale.weight_decay);
  const auto beta1 = hn::Set(d, step.beta1), rest1 = hn::Set(d, 1.0f - step.beta1);
  const auto beta2 = hn::Set(d, step.beta2), rest2 = hn::Set(d, 1.0f - step.beta2);
  walk(n, hn::Lanes(d), [&](size_t i, size_t count) HWY_ATTR {
    const auto w = read(d, weight + i, count);
    const auto g = hn::Add(scaled(d, read(d, gradient + i, count), step.scale), hn::Mul(decay, w));
    const auto m = hn::Add(hn::Mul(beta1, read(d, mean + i, count)), hn::Mul(rest1, g));
    const auto v = hn::Add(hn::Mul(beta2, read(d, variance + i, count)), hn::Mul(rest2, hn::Mul(g, g)));
    const auto divisor = hn::Add(hn::Sqrt(v), hn::Set(d, step.epsilon));
    write(m, d, mean + i, count);
    write(v, d, variance + i, count);
    write(hn::Sub(w, hn::Div(hn::Mul(rate, m), divisor)), d, weight + i, count);
  });
}

void dcasgd_step(float* weight, float* backup, float* velocity, const float* gradient, size_t n,
                 const DcasgdStep& step) {
  const hn::ScalableTag<float> d;
  const auto rate = hn::Set(d, step.learning_rate), decay = hn::Set(d, step.scale.weight_decay);
  const auto lambda = hn::Set(d, step.lambda);
  walk(n, hn::Lanes(d), [&](size_t i, size_t count) HWY_ATTR {
    const auto w = read(d, weight + i, count);
    const auto g = scaled(d, read(d, gradient + i, count), step.scale);
    const auto delay = hn::Mul(hn::Mul(hn::Mul(lambda, g), g), hn::Sub(w, read(d, backup + i, count)));
    const auto descent = hn::Mul(rate, hn::Add(hn::Add(g, hn::Mul(decay, w)), delay));
    float* velocity_here = velocity == nullptr ? nullptr : velocity + i;
    const auto to = descended(d, w, descent, velocity_here, step.momentum, count);
    write(to, d, weight + i, count);
    write(to, d, backup + i, count);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace geomx
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geomx {

HWY_EXPORT(sum_f32);
HWY_EXPORT(add_f32);
HWY_EXPORT(add_f64);
HWY_EXPORT(add_i32);
HWY_EXPORT(add_i64);
HWY_EXPORT(add_u8);
HWY_EXPORT(add_f16_to_f32);
HWY_EXPORT(add_bf16_to_f32);
HWY_EXPORT(f32_to_f16);
HWY_EXPORT(f32_to_bf16);
HWY_EXPORT(f16_to_f32);
HWY_EXPORT(bf16_to_f32);
HWY_EXPORT(scale_f32);
HWY_EXPORT(abs_sum_f32);
HWY_EXPORT(sgd_step);
HWY_EXPORT(adam_step);
HWY_EXPORT(dcasgd_step);

void sum_f32(float* sum, const void* a, const void* b, size_t n) { HWY_DYNAMIC_DISPATCH(sum_f32)(sum, a, b, n); }
void add_f32(float* sum, const void* values, size_t n) { HWY_DYNAMIC_DISPATCH(add_f32)(sum, values, n); }
void add_f64(double* sum, const void* values, size_t n) { HWY_DYNAMIC_DISPATCH(add_f64)(sum, values, n); }
void add_i32(int32_t* sum, const void* values, size_t n) { HWY_DYNAMIC_DISPATCH(add_i32)(sum, values, n); }
void add_i64(int64_t* sum, const void* values, size_t n) { HWY_DYNAMIC_DISPATCH(add_i64)(sum, values, n); }
void add_u8(uint8_t* sum, const void* values, size_t n) { HWY_DYNAMIC_DISPATCH(add_u8)(sum, values, n); }
void add_f16_to_f32(float* sum, const void* halves, size_t n) { HWY_DYNAMIC_DISPATCH(add_f16_to_f32)(sum, halves, n); }
void add_bf16_to_f32(float* sum, const void* halves, size_t n) {
  HWY_DYNAMIC_DISPATCH(add_bf16_to_f32)(sum, halves, n);
}
size_t f32_to_f16(const float* values, void* halves, size_t n, Overflow overflow) {
  return HWY_DYNAMIC_DISPATCH(f32_to_f16)(values, halves, n, overflow);
}
size_t f32_to_bf16(const float* values, void* halves, size_t n, Overflow overflow) {
  return HWY_DYNAMIC_DISPATCH(f32_to_bf16)(values, halves, n, overflow);
}
void f16_to_f32(const void* halves, float* values, size_t n) { HWY_DYNAMIC_DISPATCH(f16_to_f32)(halves, values, n); }
void bf16_to_f32(const void* halves, float* values, size_t n) { HWY_DYNAMIC_DISPATCH(bf16_to_f32)(halves, values, n); }
void scale_f32(float* values, float factor, size_t n) { HWY_DYNAMIC_DISPATCH(scale_f32)(values, factor, n); }
double abs_sum_f32(const void* values, size_t n) { return HWY_DYNAMIC_DISPATCH(abs_sum_f32)(values, n); }
void sgd_step(float* weight, float* velocity, const float* gradient, size_t n, const SgdStep& step) {
  HWY_DYNAMIC_DISPATCH(sgd_step)(weight, velocity, gradient, n, step);
}
void adam_step(float* weight, float* mean, float* variance, const float* gradient, size_t n, const AdamStep& step) {
  HWY_DYNAMIC_DISPATCH(adam_step)(weight, mean, variance, gradient, n, step);
}
void dcasgd_step(float* weight, float* backup, float* velocity, const float* gradient, size_t n,
                 const DcasgdStep& step) {
  HWY_DYNAMIC_DISPATCH(dcasgd_step)(weight, backup, velocity, gradient, n, step);
}

}  // namespace geomx
#endif
