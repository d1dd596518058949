// The bytes of sparse parts: every width, every length, and whatever else may come from a network.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "core/reduce.h"
#include "entries.h"

namespace {

using namespace bsc;

const gx_kernels kernels = [] {
  gx_kernels k = {};
  k.struct_size = sizeof(k);
  k.f32_to_f16 = [](const float* values, void* halves, uint64_t n, int) -> uint64_t {
    return geomx::f32_to_f16(values, halves, n);
  };
  k.f16_to_f32 = [](const void* halves, float* values, uint64_t n) { geomx::f16_to_f32(halves, values, n); };
  return k;
}();

std::vector<uint8_t> written(const Entries& e, uint64_t length, Width width, std::vector<float>* sent) {
  Scratch scratch;
  sent->assign(e.size(), 0);
  std::vector<uint8_t> out(max_size(length), 0xee);
  out.resize(
      write(e.positions.data(), e.values.data(), e.size(), length, width, kernels, scratch, sent->data(), out.data()));
  return out;
}

const char* read_back(const std::vector<uint8_t>& bytes, uint64_t length, Entries* entries) {
  Scratch scratch;
  return read({bytes.data(), bytes.size()}, length, kernels, scratch, *entries);
}

Entries drawn(uint64_t length, double share, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> draw;
  std::normal_distribution<float> values;
  Entries entries;
  for (uint64_t i = 0; i < length; ++i) {
    if (draw(random) >= share) continue;
    entries.positions.push_back(uint32_t(i));
    entries.values.push_back(values(random));
  }
  return entries;
}

TEST_CASE("what was written is read: every width, density and length") {
  for (const Width width : {Width::single, Width::half, Width::byte}) {
    const double bound = width == Width::single ? 0 : width == Width::half ? 1.0 / 2048 : 1.0 / 250;
    for (const uint64_t length : {0u, 1u, 2u, 7u, 8u, 63u, 64u, 65u, 127u, 128u, 129u, 1000u, 40001u}) {
      for (const double share : {0.0, 0.001, 0.01, 0.3, 0.9, 1.0}) {
        const Entries entries = drawn(length, share, uint32_t(length));
        std::vector<float> sent;
        const std::vector<uint8_t> bytes = written(entries, length, width, &sent);
        CHECK(bytes.size() <= max_size(length));
        Entries back;
        REQUIRE(read_back(bytes, length, &back) == nullptr);
        CHECK(back.positions == entries.positions);
        CHECK(back.values == sent);
        float most = 0;
        for (float value : entries.values) most = std::max(most, std::fabs(value));
        for (size_t i = 0; i < sent.size(); ++i) CHECK(std::fabs(sent[i] - entries.values[i]) <= bound * most);
      }
    }
  }
}

TEST_CASE("positions cost Rice's code of their gaps") {
  const uint64_t length = 1 << 20;
  const Entries entries = drawn(length, 0.01, 3);
  std::vector<float> sent;
  const size_t bytes = written(entries, length, Width::byte, &sent).size();
  const double bits = 8.0 * double(bytes) / double(entries.size()) - 8;
  CHECK(bits < 8.4);  // 8.1 by the formula, and a sixteenth of a byte for scales
}

TEST_CASE("positions reach past 2^24 and up to 2^32 - 2") {
  for (const uint64_t length : {uint64_t(1) << 25, uint64_t(UINT32_MAX)}) {
    Entries entries;
    entries.positions = {0, (1u << 24) - 1, 1u << 24, (1u << 24) + 1, uint32_t(length - 1)};
    entries.values = {1, 2, 3, 4, 5};
    Scratch scratch;
    std::vector<float> sent(5);
    std::vector<uint8_t> bytes(4096);  // max_size is for the worst
    bytes.resize(write(entries.positions.data(), entries.values.data(), 5, length, Width::single, kernels, scratch,
                       sent.data(), bytes.data()));
    Entries back;
    REQUIRE(read_back(bytes, length, &back) == nullptr);
    CHECK(back.positions == entries.positions);
    CHECK(back.values == entries.values);
    CHECK(read_back(bytes, length - 1, &back) != nullptr);
  }
}

TEST_CASE("values of any magnitude keep their size in halves and eight bits") {
  for (const float scale : {1e-44f, 1e-38f, 1e-30f, 1.0f, 1e30f, 1e38f, 3.4e38f}) {
    Entries entries;
    entries.positions = {1, 2, 5};
    entries.values = {scale, -scale / 2, scale / 3};
    for (const Width width : {Width::half, Width::byte}) {
      std::vector<float> sent;
      Entries back;
      REQUIRE(read_back(written(entries, 9, width, &sent), 9, &back) == nullptr);
      CHECK(back.values == sent);
      for (size_t i = 0; i < 3; ++i) {
        CHECK(std::isfinite(sent[i]));
        // Below float32's normal range scales run out of bits: what is lost stays in the residual.
        if (scale >= 1e-30f) CHECK(sent[i] == doctest::Approx(entries.values[i]).epsilon(0.01));
      }
    }
  }
}

TEST_CASE("bytes that can't be right are refused, and none are written to") {
  const Entries entries = drawn(1000, 0.05, 9);
  std::vector<float> sent;
  for (const Width width : {Width::single, Width::half, Width::byte}) {
    const std::vector<uint8_t> good = written(entries, 1000, width, &sent);
    Entries back;
    for (size_t size = 0; size < good.size(); ++size)
      CHECK(read_back({good.begin(), good.begin() + long(size)}, 1000, &back) != nullptr);
    std::vector<uint8_t> longer = good;
    longer.push_back(0);
    CHECK(read_back(longer, 1000, &back) != nullptr);
    longer.back() = 1;
    CHECK(read_back(longer, 1000, &back) != nullptr);
    CHECK(read_back(good, entries.size() - 1, &back) != nullptr);
  }
  Entries back;
  Entries infinite = entries;
  infinite.values[3] = INFINITY;
  CHECK(std::string(read_back(written(infinite, 1000, Width::single, &sent), 1000, &back)) == "a value is not finite");
  CHECK(read_back({3, 0}, 10, &back) != nullptr);
  CHECK(read_back({32, 0}, 10, &back) != nullptr);
  CHECK(read_back({0, 0}, 10, &back) == nullptr);
  CHECK(read_back({0, 0, 0}, 10, &back) != nullptr);
  CHECK(read_back({0, 128, 0}, 10, &back) != nullptr);
  CHECK(read_back({16, 0}, 0, &back) != nullptr);
}

TEST_CASE("any bytes give entries inside the part or a sentence") {
  std::mt19937 random(11);
  std::vector<float> sent;
  for (int turn = 0; turn < 200000; ++turn) {
    const uint64_t length = random() % 300;
    std::vector<uint8_t> bytes;
    if (turn % 2 == 0) {
      bytes = written(drawn(length, 0.2, uint32_t(turn)), length, Width(random() % 3), &sent);
      for (uint32_t flips = random() % 4; flips > 0; --flips) bytes[random() % bytes.size()] = uint8_t(random());
    } else {
      bytes.resize(random() % 40);
      for (uint8_t& byte : bytes) byte = uint8_t(random());
      if (!bytes.empty()) bytes[0] &= 0x13;
    }
    Entries back;
    if (read_back(bytes, length, &back) != nullptr) continue;
    REQUIRE(back.positions.size() == back.values.size());
    for (size_t i = 0; i < back.size(); ++i) {
      REQUIRE(back.positions[i] < length);
      if (i > 0) REQUIRE(back.positions[i] > back.positions[i - 1]);
    }
  }
}

}  // namespace
