// Processor time of a call, for tests that hold an algorithm to an order of growth.
#pragma once

#include <ctime>
#include <functional>

namespace bantam::testing {

// Code under a sanitizer takes up to ten times as long: it says nothing of the algorithm.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr double kSlowdown = 10;
#else
inline constexpr double kSlowdown = 1;
#endif

/// Seconds of all threads of this process, without what a sanitizer adds.
inline double cpu_seconds(const std::function<void()>& call) {
  const std::clock_t begin = std::clock();
  call();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC / kSlowdown;
}

}  // namespace bantam::testing
