// Processor time of a call, for tests that hold an algorithm to an order of growth.
#pragma once

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <functional>
#include <map>
#include <string>

namespace bantam::testing {

/// Whether a sanitizer is on that keeps memory of its own beside each byte of the program's.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
/// Code under sanitizers takes up to 15 times as long, which says nothing of the algorithm.
inline constexpr double kSlowdown = kSanitized ? 20 : 1;

inline double processor_seconds_of(const std::function<void()>& call) {
  const std::clock_t begin = std::clock();
  call();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

/// How many times as long as on the machine that the bounds were set on work with strings and maps takes here and now:
/// a shared machine's processors are slower at times. At least 1.
inline double slowness() {
  constexpr double kUsual = 0.008;
  std::size_t sum = 0;
  const double seconds = processor_seconds_of([&] {
    std::map<std::string, std::size_t> names;
    for (std::size_t i = 0; i < 20'000; ++i)
      names.emplace("layers." + std::to_string(i * 7919 % 20'011) + ".convolution.kernel", i);
    for (const auto& [name, number] : names) sum += name.size() * number;
  });
  return sum == 0 ? 1 : std::max(1.0, seconds / kUsual);  // the sum is asked for so that the work is done
}

/// Seconds of all threads of this process, without what a sanitizer or a slow machine adds.
inline double cpu_seconds(const std::function<void()>& call) {
  const double before = slowness();
  const double seconds = processor_seconds_of(call);
  return seconds / std::max({kSlowdown, before, slowness()});
}

}  // namespace bantam::testing
