// Adds the time of a block to one or two totals, in seconds.
#pragma once
#include <chrono>

namespace geomx {

class Stopwatch {
 public:
  explicit Stopwatch(double* total, double* detail = nullptr)
      : total_(total), detail_(detail), start_(std::chrono::steady_clock::now()) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    *total_ += seconds;
    if (detail_) *detail_ += seconds;
  }

 private:
  double* total_;
  double* detail_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace geomx
