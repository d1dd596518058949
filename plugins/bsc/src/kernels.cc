// See kernels.h. Built with -ffp-contract=off, so that residuals have the same bits on every machine.
#include "kernels.h"

#include <cfloat>
#include <cstring>

#define HWY_DISABLED_TARGETS HWY_SSSE3
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace bsc {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int32_t no_sign = 0x7fffffff, infinite = 0x7f800000;

template <class DF>
struct Sums {
  hn::Vec<DF> momentum, residual;
};

template <class DF>
HWY_INLINE Sums<DF> step(DF, bool has_momentum, hn::Vec<DF> u, hn::Vec<DF> v, hn::Vec<DF> g, hn::Vec<DF> factor) {
  const auto next = has_momentum ? hn::Add(hn::Mul(u, factor), g) : g;
  return {next, hn::Add(v, next)};
}

// The same where something isn't finite: once in a blue moon.
template <class DF>
HWY_NOINLINE Sums<DF> careful_step(DF d, bool has_momentum, hn::Vec<DF> u, hn::Vec<DF> v, hn::Vec<DF> g,
                                   hn::Vec<DF> factor, uint64_t* num_infinite) {
  const hn::RebindToSigned<DF> di;
  const auto is_infinite = hn::Gt(hn::And(hn::BitCast(di, g), hn::Set(di, no_sign)), hn::Set(di, infinite - 1));
  *num_infinite += hn::CountTrue(di, is_infinite);
  const auto finite = hn::IfThenZeroElse(hn::RebindMask(d, is_infinite), g);
  const auto most = hn::Set(d, FLT_MAX), least = hn::Set(d, -FLT_MAX);
  const auto next = has_momentum ? hn::Min(hn::Max(hn::Add(hn::Mul(u, factor), finite), least), most) : finite;
  return {next, hn::Min(hn::Max(hn::Add(v, next), least), most)};
}

template <class DF, class MI>
HWY_INLINE void put(DF d, hn::Vec<DF> values, MI is_candidate, uint64_t position, Sink& to) {
  const hn::RebindToSigned<DF> di;
  const hn::RebindToUnsigned<DF> du;
  if (to.count <= to.capacity) {
    const auto positions = hn::Add(hn::Iota(du, 0), hn::Set(du, uint32_t(position)));
    hn::StoreU(hn::Compress(positions, hn::RebindMask(du, is_candidate)), du, to.positions + to.count);
    hn::StoreU(hn::Compress(values, hn::RebindMask(d, is_candidate)), d, to.values + to.count);
  }
  to.count += hn::CountTrue(di, is_candidate);
}

template <bool has_momentum>
HWY_INLINE void update_as(float* u, float* v, const float* g, uint64_t n, float factor, int32_t border, Sink& to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const uint64_t lanes = hn::Lanes(d);
  const auto factors = hn::Set(d, factor);
  const auto borders = hn::Set(di, border - 1), mask = hn::Set(di, no_sign);
  const auto one = [&](float* momentum, float* residual, const float* gradient, uint64_t position) HWY_ATTR {
    const auto old_u = has_momentum ? hn::LoadU(d, momentum) : hn::Zero(d);
    const auto old_v = hn::LoadU(d, residual), gradients = hn::LoadU(d, gradient);
    auto sums = step(d, has_momentum, old_u, old_v, gradients, factors);
    auto magnitude = hn::And(hn::BitCast(di, sums.residual), mask);
    auto is_candidate = hn::Gt(magnitude, borders);
    if (HWY_UNLIKELY(!hn::AllFalse(di, is_candidate))) {
      if (HWY_UNLIKELY(!hn::AllFalse(di, hn::Gt(magnitude, hn::Set(di, infinite - 1))))) {
        sums = careful_step(d, has_momentum, old_u, old_v, gradients, factors, &to.num_infinite);
        magnitude = hn::And(hn::BitCast(di, sums.residual), mask);
        is_candidate = hn::Gt(magnitude, borders);
      }
      put(d, sums.residual, is_candidate, position, to);
    }
    if (has_momentum) hn::StoreU(sums.momentum, d, momentum);
    hn::StoreU(sums.residual, d, residual);
  };
  uint64_t i = 0;
  for (; i + lanes <= n; i += lanes) one(u + i, v + i, g + i, i);
  if (i == n) return;
  HWY_ALIGN float rest[3][hn::MaxLanes(d)] = {};
  if (has_momentum) std::memcpy(rest[0], u + i, (n - i) * sizeof(float));
  std::memcpy(rest[1], v + i, (n - i) * sizeof(float));
  std::memcpy(rest[2], g + i, (n - i) * sizeof(float));
  one(rest[0], rest[1], rest[2], i);  // what is past the end is 0, and a border is above 0
  if (has_momentum) std::memcpy(u + i, rest[0], (n - i) * sizeof(float));
  std::memcpy(v + i, rest[1], (n - i) * sizeof(float));
}

void update(float* u, float* v, const float* g, uint64_t n, float factor, int32_t border, Sink* to) {
  if (u != nullptr)
    update_as<true>(u, v, g, n, factor, border, *to);
  else
    update_as<false>(nullptr, v, g, n, 0, border, *to);
}

// Collects what is at least the border, as update() does.
void scan(const float* v, uint64_t n, uint64_t first, int32_t border, Sink* to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const uint64_t lanes = hn::Lanes(d);
  const auto borders = hn::Set(di, border - 1), mask = hn::Set(di, no_sign);
  const auto one = [&](const float* from, uint64_t position) HWY_ATTR {
    const auto values = hn::LoadU(d, from);
    const auto is_candidate = hn::Gt(hn::And(hn::BitCast(di, values), mask), borders);
    if (!hn::AllFalse(di, is_candidate)) put(d, values, is_candidate, position, *to);
  };
  uint64_t i = 0;
  for (; i + lanes <= n; i += lanes) one(v + i, first + i);
  if (i == n) return;
  HWY_ALIGN float rest[hn::MaxLanes(d)] = {};
  std::memcpy(rest, v + i, (n - i) * sizeof(float));
  one(rest, first + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace bsc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bsc {

HWY_EXPORT(update);
HWY_EXPORT(scan);

void update(float* u, float* v, const float* g, uint64_t n, float factor, int32_t border, Sink* to) {
  HWY_DYNAMIC_DISPATCH(update)(u, v, g, n, factor, border, to);
}
void scan(const float* v, uint64_t n, uint64_t first, int32_t border, Sink* to) {
  HWY_DYNAMIC_DISPATCH(scan)(v, n, first, border, to);
}

}  // namespace bsc
#endif
