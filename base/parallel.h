// Parts of work over threads. What a part computes depends on shapes only, so results do not depend on the thread
// count.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace bantam {

/// Runs `part(context, i)` for every i in [0, parts) on the calling thread and up to `threads` - 1 workers of the
/// process' pool, in any order. The caller runs parts itself and waits only for parts that a worker has begun: a worker
/// without a core delays nobody. Idle workers sleep after some microseconds. Of the exceptions thrown, that of the
/// lowest i is rethrown after all parts have ended; on one thread the parts after one that throws are not begun.
/// Thread-safe; called from within a part, it runs on that thread alone.
void run_parts(std::int64_t parts, int threads, void (*part)(void* context, std::int64_t i), void* context);

/// Runs `part(i)` for every i in [0, parts) on up to `threads` threads, in any order (`run_parts`). One copy of the
/// part's code, also for one thread.
template <class Part>
void parallel_parts(std::int64_t parts, int threads, Part&& part) {
  using Callable = std::remove_reference_t<Part>;
  run_parts(
      parts, threads, [](void* context, std::int64_t i) { (*static_cast<Callable*>(context))(i); },
      const_cast<void*>(static_cast<const void*>(std::addressof(part))));
}

/// Runs `range(begin, end)` over [0, count) split into ranges of `grain` (the last one may be shorter).
template <class Range>
void parallel_ranges(std::int64_t count, std::int64_t grain, int threads, Range&& range) {
  const std::int64_t parts = (count + grain - 1) / grain;
  parallel_parts(parts, threads, [&](std::int64_t i) {
    const std::int64_t begin = i * grain;
    range(begin, begin + grain < count ? begin + grain : count);
  });
}

}  // namespace bantam
