// Processor time of a call, for tests that hold an algorithm to an order of growth.
#pragma once

#include <ctime>
#include <functional>

namespace bantam::testing {

/// Whether a sanitizer is on that keeps memory of its own beside each byte of the program's.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
/// Code under sanitizers takes up to 15 times as long, which says nothing of the algorithm.
inline constexpr double kSlowdown = kSanitized ? 20 : 1;

/// Seconds of all threads of this process, without what a sanitizer adds.
inline double cpu_seconds(const std::function<void()>& call) {
  const std::clock_t begin = std::clock();
  call();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC / kSlowdown;
}

}  // namespace bantam::testing
