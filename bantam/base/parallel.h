// Parts of work over threads. What a part computes depends on shapes only, so results do not depend on the thread
// count.
#pragma once

#include <cstdint>
#include <exception>
#include <mutex>

namespace bantam {

/// Runs `part(i)` for every i in [0, parts) on up to `threads` OpenMP threads, in any order. The first exception thrown
/// is rethrown after all parts have ended.
template <class Part>
void parallel_parts(std::int64_t parts, int threads, Part&& part) {
  if (parts <= 1 || threads <= 1) {
    for (std::int64_t i = 0; i < parts; ++i) part(i);
    return;
  }
  std::exception_ptr failure;
  std::mutex guard;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (std::int64_t i = 0; i < parts; ++i) {
    try {
      part(i);
    } catch (...) {
      const std::lock_guard lock(guard);
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

/// Runs `range(begin, end)` over [0, count) cut into pieces of `grain` (the last is shorter).
template <class Range>
void parallel_ranges(std::int64_t count, std::int64_t grain, int threads, Range&& range) {
  const std::int64_t parts = (count + grain - 1) / grain;
  parallel_parts(parts, threads, [&](std::int64_t i) {
    const std::int64_t begin = i * grain;
    range(begin, begin + grain < count ? begin + grain : count);
  });
}

}  // namespace bantam
