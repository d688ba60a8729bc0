// The largest batch that fits: bisection, then the sizes around it, because fitting is not monotonic.
#pragma once

#include <cstdint>
#include <functional>

namespace bantam {

/// Which sizes are asked about: multiples of `multiple_of` from there to `max`.
struct BatchRange {
  std::int64_t max = 1;
  std::int64_t multiple_of = 1;
};

/// The questions; asked a few dozen times, each size at most once or twice.
struct BatchQuestions {
  /// Whether a run with this batch size fits. Because of fragmentation, some sizes below the largest do not fit.
  std::function<bool(std::int64_t)> fits;
  /// Whether it would fit without fragmentation: true for all that fits, and monotonic in the size.
  std::function<bool(std::int64_t)> could_fit;
};

/// The largest size of the range that fits, within a per cent (exactly, below 256 steps of the range); 0 where none
/// does. Which sizes are asked about does not depend on the answers, so that whoever lets more sizes fit never gets a
/// smaller one. Deterministic.
std::int64_t largest_batch(const BatchRange& range, const BatchQuestions& questions);

}  // namespace bantam
