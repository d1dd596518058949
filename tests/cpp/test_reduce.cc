// The kernels against loops written here, for every length from 0 to 67 and odd offsets, with sentinels past the end,
// on every instruction set that this machine has.
#include <doctest/doctest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "core/reduce.h"

namespace {

using namespace geomx;

void on_every_target(const std::function<void()>& check) {
  const int64_t all = hwy::SupportedTargets();
  for (int64_t rest = all; rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    CAPTURE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    check();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// A small float format by arithmetic in double: `mantissa` bits, smallest normal exponent `least`.
struct Format {
  int mantissa, least, bias;
  double largest;
};
constexpr Format f16{10, -14, 15, 65504.0};
constexpr Format bf16{7, -126, 127, 3.3895313892515355e38};

double widened(uint16_t half, const Format& format) {
  const int exponent = (half & 0x7fff) >> format.mantissa;
  const double fraction = half & ((1 << format.mantissa) - 1);
  const double sign = half & 0x8000 ? -1.0 : 1.0;
  if (exponent == 0) return sign * std::ldexp(fraction, format.least - format.mantissa);
  if (exponent == 2 * format.bias + 1) return fraction == 0 ? sign * HUGE_VAL : std::nan("");
  return sign * std::ldexp(1 + fraction / (1 << format.mantissa), exponent - format.bias);
}

uint16_t narrowed(float value, const Format& format, Overflow overflow, size_t* count) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) {
    const int shift = 23 - format.mantissa;
    const uint32_t exponent = uint32_t(2 * format.bias + 1) << format.mantissa;
    const uint32_t fraction = (bits_of(value) & 0x7fffff) >> shift;
    return uint16_t(sign | exponent | 1u << (format.mantissa - 1) | fraction);
  }
  const double magnitude = std::fabs(double(value));
  const int exponent = magnitude == 0 ? format.least : std::max(format.least, std::ilogb(magnitude));
  const double unit = std::ldexp(1.0, exponent - format.mantissa);
  const double rounded = std::isinf(magnitude) ? HUGE_VAL : std::nearbyint(magnitude / unit) * unit;
  if (rounded > format.largest) {
    const bool is_saturated = overflow == Overflow::saturate;
    if (is_saturated || !std::isinf(value)) ++*count;
    return uint16_t(sign | (((2 * format.bias + 1) << format.mantissa) - is_saturated));
  }
  const int to = rounded == 0 ? format.least : std::max(format.least, std::ilogb(rounded));
  const int scaled = int(std::ldexp(rounded, format.mantissa - to));
  return uint16_t(sign | (scaled + ((to - format.least) << format.mantissa)));
}

std::vector<float> awkward_floats(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(n);
  for (float& value : values) {
    switch (random() % 8) {
      case 0:
        value = float_of(random());
        break;  // any bits: NaN, infinity, denormals
      case 1:
        value = float(random() % 131072) - 65536.0f;
        break;
      case 2:
        value = std::ldexp(float(int(random() % 4096)) - 2048, -30);
        break;
      case 3:
        value = std::ldexp(1.0f + float(random() % 2048) / 2048, int(random() % 40) - 26);
        break;
      default:
        value = std::normal_distribution<float>()(random);
    }
  }
  return values;
}

// n elements of T at `offset` bytes, with sentinels before and behind.
template <typename T>
class Guarded {
 public:
  Guarded(size_t n, size_t offset) : n_(n), offset_(offset), bytes_(n * sizeof(T) + offset + 128, 0xA5) {}
  uint8_t* bytes() { return bytes_.data() + 64 + offset_; }
  T* typed() { return reinterpret_cast<T*>(bytes()); }
  void fill(const std::vector<T>& values) {
    if (n_ != 0) std::memcpy(bytes(), values.data(), n_ * sizeof(T));
  }
  T at(size_t i) {
    T value;
    std::memcpy(&value, bytes() + i * sizeof(T), sizeof(T));
    return value;
  }
  bool is_intact() const {
    const size_t start = 64 + offset_, end = start + n_ * sizeof(T);
    const auto is_sentinel = [](uint8_t byte) { return byte == 0xA5; };
    return std::all_of(bytes_.begin(), bytes_.begin() + start, is_sentinel) &&
           std::all_of(bytes_.begin() + end, bytes_.end(), is_sentinel);
  }

 private:
  size_t n_, offset_;
  std::vector<uint8_t> bytes_;
};

bool same(float a, float b) { return (std::isnan(a) && std::isnan(b)) || bits_of(a) == bits_of(b); }

template <typename T, typename Make>
void check_add(void (*add)(T*, const void*, size_t), Make make) {
  for (size_t n = 0; n <= 67; ++n) {
    for (size_t offset : {0, 1, 3}) {
      std::vector<T> a(n), b(n);
      for (size_t i = 0; i < n; ++i) a[i] = make(2 * i), b[i] = make(2 * i + 1);
      Guarded<T> sum(n, offset * sizeof(T)), values(n, offset);
      sum.fill(a), values.fill(b);
      add(sum.typed(), values.bytes(), n);
      CHECK(sum.is_intact());
      for (size_t i = 0; i < n; ++i) {
        using Wide = std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::common_type<T>>;
        using U = typename Wide::type;
        CHECK(sum.at(i) == T(U(a[i]) + U(b[i])));
      }
    }
  }
}

void check_narrow(size_t (*narrow)(const float*, void*, size_t, Overflow), const Format& format, Overflow overflow) {
  for (size_t n = 0; n <= 67; ++n) {
    for (size_t offset : {0, 1, 2, 6}) {
      const std::vector<float> values = awkward_floats(n, uint32_t(n * 8 + offset));
      Guarded<float> from(n, 4 * (offset % 4));
      Guarded<uint16_t> to(n, offset);
      from.fill(values);
      size_t expected_count = 0;
      std::vector<uint16_t> expected;
      for (float value : values) expected.push_back(narrowed(value, format, overflow, &expected_count));
      CHECK(narrow(from.typed(), to.bytes(), n, overflow) == expected_count);
      CHECK(to.is_intact());
      for (size_t i = 0; i < n; ++i) CHECK_MESSAGE(to.at(i) == expected[i], "from ", values[i], " at ", i);
    }
  }
}

std::vector<uint16_t> all_halves() {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = uint16_t(i);
  return halves;
}

TEST_CASE("adding: every length, odd offsets, nothing past the end") {
  on_every_target([] {
    check_add<float>(add_f32, [](size_t i) { return float(i) * 0.37f - 5; });
    check_add<double>(add_f64, [](size_t i) { return double(i) * 0.37 - 5; });
    check_add<int32_t>(add_i32, [](size_t i) { return int32_t(i * 2654435761u); });
    check_add<int64_t>(add_i64, [](size_t i) { return int64_t(i * 0x9E3779B97F4A7C15u); });
    check_add<uint8_t>(add_u8, [](size_t i) { return uint8_t(i * 97); });
  });
}

TEST_CASE("narrowing rounds to nearest even, saturates or overflows, and counts, on every target alike") {
  on_every_target([] {
    for (Overflow overflow : {Overflow::saturate, Overflow::infinity}) {
      check_narrow(f32_to_f16, f16, overflow);
      check_narrow(f32_to_bf16, bf16, overflow);
    }
  });
}

TEST_CASE("narrowing at the edges of the format") {
  on_every_target([] {
    const float inf = std::numeric_limits<float>::infinity();
    const std::vector<float> values = {65504,        65519.996f, 65520, -65520,        1e30f,         inf,
                                       -inf,         0.0f,       -0.0f, 5.9604645e-8f, 2.9802322e-8f, 2.98024e-8f,
                                       6.097555e-5f, 2049,       2051,  std::nanf("")};
    const std::vector<uint16_t> expected = {0x7bff, 0x7bff, 0x7bff, 0xfbff, 0x7bff, 0x7bff, 0xfbff, 0x0000,
                                            0x8000, 0x0001, 0x0000, 0x0001, 0x03ff, 0x6800, 0x6802, 0x7e00};
    std::vector<uint16_t> halves(values.size());
    CHECK(f32_to_f16(values.data(), halves.data(), values.size()) == 5);
    CHECK(halves == expected);
  });
}

TEST_CASE("large arrays, written past the caches, are narrowed the same") {
  const size_t n = (size_t{1} << 22) + 77;
  const std::vector<float> values = awkward_floats(n, 5);
  size_t expected_count = 0;
  std::vector<uint16_t> expected;
  for (float value : values) expected.push_back(narrowed(value, f16, Overflow::saturate, &expected_count));
  on_every_target([&] {
    for (size_t offset : {0, 1, 34}) {
      Guarded<uint16_t> to(n, offset);
      CHECK(f32_to_f16(values.data(), to.bytes(), n) == expected_count);
      CHECK(to.is_intact());
      CHECK(std::memcmp(to.bytes(), expected.data(), 2 * n) == 0);
    }
  });
}

TEST_CASE("widening is exact for every half") {
  const std::vector<uint16_t> halves = all_halves();
  on_every_target([&] {
    std::vector<float> from_f16(halves.size()), from_bf16(halves.size());
    f16_to_f32(halves.data(), from_f16.data(), halves.size());
    bf16_to_f32(halves.data(), from_bf16.data(), halves.size());
    size_t wrong = 0;
    for (size_t i = 0; i < halves.size(); ++i) {
      wrong += !same(from_f16[i], float(widened(halves[i], f16)));
      wrong += !same(from_bf16[i], float(widened(halves[i], bf16)));
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("halves are added in float32: every length, odd offsets") {
  on_every_target([] {
    for (size_t n = 0; n <= 67; ++n) {
      for (size_t offset : {0, 1, 5}) {
        std::vector<uint16_t> halves(n);
        for (size_t i = 0; i < n; ++i) halves[i] = uint16_t(0x3a00 + 37 * i);
        Guarded<uint16_t> from(n, offset);
        Guarded<float> f16_sum(n, 4), bf16_sum(n, 4), values(n, 8);
        from.fill(halves), f16_sum.fill(std::vector<float>(n, 1.5f)), bf16_sum.fill(std::vector<float>(n, 1.5f));
        add_f16_to_f32(f16_sum.typed(), from.bytes(), n);
        add_bf16_to_f32(bf16_sum.typed(), from.bytes(), n);
        f16_to_f32(from.bytes(), values.typed(), n);
        CHECK(f16_sum.is_intact());
        CHECK(bf16_sum.is_intact());
        CHECK(values.is_intact());
        for (size_t i = 0; i < n; ++i) {
          CHECK(f16_sum.at(i) == 1.5f + float(widened(halves[i], f16)));
          CHECK(bf16_sum.at(i) == 1.5f + float(widened(halves[i], bf16)));
        }
      }
    }
  });
}

TEST_CASE("scale and sum of magnitudes") {
  on_every_target([] {
    for (size_t n = 0; n <= 67; ++n) {
      Guarded<float> values(n, 4);
      std::vector<float> start(n);
      double sum = 0;
      for (size_t i = 0; i < n; ++i) start[i] = (i % 2 ? -1.0f : 1.0f) * float(i), sum += double(i);
      values.fill(start);
      CHECK(abs_sum_f32(values.bytes(), n) == sum);
      scale_f32(values.typed(), 0.25f, n);
      CHECK(values.is_intact());
      for (size_t i = 0; i < n; ++i) CHECK(values.at(i) == start[i] * 0.25f);
    }
  });
}

float scaled(float gradient, const GradientScale& scale) {
  const float g = scale.rescale * gradient;
  if (scale.clip < 0) return g;
  return g > scale.clip ? scale.clip : g < -scale.clip ? -scale.clip : g;
}

constexpr GradientScale plain_scale{1.0f, -1.0f, 0.0f}, full_scale{0.5f, 0.25f, 0.01f};

TEST_CASE("sgd: with and without momentum, clipping and decay") {
  on_every_target([] {
    for (const GradientScale& scale : {plain_scale, full_scale}) {
      for (size_t n = 0; n <= 67; ++n) {
        for (bool has_velocity : {false, true}) {
          const SgdStep step{scale, 0.1f, 0.9f};
          std::vector<float> w(n), v(n), g(n);
          for (size_t i = 0; i < n; ++i) w[i] = float(i) / 7, v[i] = float(i) / 11, g[i] = std::sin(float(i));
          Guarded<float> weight(n, 4), velocity(n, 8);
          weight.fill(w), velocity.fill(v);
          sgd_step(weight.typed(), has_velocity ? velocity.typed() : nullptr, g.data(), n, step);
          CHECK(weight.is_intact());
          CHECK(velocity.is_intact());
          for (size_t i = 0; i < n; ++i) {
            const volatile float decay = scale.weight_decay * w[i];  // volatile: no fused arithmetic in the test either
            const volatile float descent = step.learning_rate * (scaled(g[i], scale) + decay);
            const volatile float kept = step.momentum * v[i];
            const float new_velocity = kept - descent;
            CHECK(weight.at(i) == (has_velocity ? w[i] + new_velocity : w[i] - descent));
            if (has_velocity) CHECK(velocity.at(i) == new_velocity);
          }
        }
      }
    }
  });
}

TEST_CASE("adam") {
  on_every_target([] {
    for (size_t n = 0; n <= 67; ++n) {
      const AdamStep step{full_scale, 0.01f, 0.9f, 0.999f, 1e-8f};
      std::vector<float> w(n), m(n), v(n), g(n);
      for (size_t i = 0; i < n; ++i) {
        w[i] = float(i) / 7, m[i] = float(i) / 110, v[i] = float(i) / 90, g[i] = std::sin(float(i));
      }
      Guarded<float> weight(n, 4), mean(n, 8), variance(n, 12);
      weight.fill(w), mean.fill(m), variance.fill(v);
      adam_step(weight.typed(), mean.typed(), variance.typed(), g.data(), n, step);
      CHECK(weight.is_intact());
      CHECK(mean.is_intact());
      CHECK(variance.is_intact());
      for (size_t i = 0; i < n; ++i) {
        const double grad = scaled(g[i], full_scale) + full_scale.weight_decay * w[i];
        const double new_mean = 0.9 * m[i] + 0.1 * grad, new_variance = 0.999 * v[i] + 0.001 * grad * grad;
        CHECK(mean.at(i) == doctest::Approx(new_mean).epsilon(1e-4));
        CHECK(variance.at(i) == doctest::Approx(new_variance).epsilon(1e-4));
        CHECK(weight.at(i) == doctest::Approx(w[i] - 0.01 * new_mean / (std::sqrt(new_variance) + 1e-8)).epsilon(1e-4));
      }
    }
  });
}

TEST_CASE("dcasgd compensates the pusher's own delay and remembers what it is answered with") {
  on_every_target([] {
    for (bool has_velocity : {false, true}) {
      for (size_t n = 0; n <= 67; ++n) {
        const DcasgdStep step{full_scale, 0.1f, 0.5f, 0.04f};
        std::vector<float> w(n), b(n), v(n), g(n);
        for (size_t i = 0; i < n; ++i) {
          w[i] = float(i) / 7, b[i] = float(i) / 9, v[i] = float(i) / 90, g[i] = std::sin(float(i));
        }
        Guarded<float> weight(n, 4), backup(n, 8), velocity(n, 12);
        weight.fill(w), backup.fill(b), velocity.fill(v);
        dcasgd_step(weight.typed(), backup.typed(), has_velocity ? velocity.typed() : nullptr, g.data(), n, step);
        CHECK(weight.is_intact());
        CHECK(backup.is_intact());
        CHECK(velocity.is_intact());
        for (size_t i = 0; i < n; ++i) {
          const double grad = scaled(g[i], full_scale);
          const double descent = 0.1 * (grad + 0.01 * w[i] + 0.04 * grad * grad * (double(w[i]) - b[i]));
          const double change = has_velocity ? 0.5 * v[i] - descent : -descent;
          CHECK(weight.at(i) == doctest::Approx(w[i] + change).epsilon(1e-4));
          CHECK(backup.at(i) == weight.at(i));
        }
      }
    }
  });
}

}  // namespace
