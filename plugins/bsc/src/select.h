// Which elements leave: exactly the k largest magnitudes, found while the residual is brought up to date. Elements of
// one magnitude at the border are drawn by lot, so that no index is preferred. Vectorised with Highway for the
// processor at hand; knows no bytes and no slots.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bsc {

// Small and good enough for lots; the same numbers everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  uint64_t below(uint64_t limit) { return uint64_t((unsigned __int128)next() * limit >> 64); }

 private:
  uint64_t state_;
};

template <typename T>
struct Chosen {
  std::vector<uint32_t> positions;  // ascending
  std::vector<T> values;
  void resize(size_t count) {
    positions.resize(count);
    values.resize(count);
  }
  size_t size() const { return positions.size(); }
};

// The memory of one tensor between rounds.
template <typename T>
struct State {
  T* momentum = nullptr;  // u; null: none is kept
  T* residual = nullptr;  // v
  uint64_t length = 0;
};

// u = factor * u + g, v = v + u (without momentum v = v + g); then `chosen` becomes the k largest of v that aren't 0.
// A value of `gradient` that isn't finite counts as 0, and sums that leave the range stay at its end. Returns how many
// weren't finite. `spare` is room that is used again.
uint64_t update_and_select(const State<float>& state, const float* gradient, float factor, uint64_t k, Random& random,
                           Chosen<float>& spare, Chosen<float>& chosen);
uint64_t update_and_select(const State<double>& state, const double* gradient, double factor, uint64_t k,
                           Random& random, Chosen<double>& spare, Chosen<double>& chosen);

}  // namespace bsc
