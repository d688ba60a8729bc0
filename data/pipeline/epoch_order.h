// The order of an epoch's samples: a pure function of (seed, epoch), so that a loader can start anywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace bantam {

/// How samples are shuffled.
struct ShuffleOptions {
  /// 0: a permutation of the whole epoch (every order is as likely). N: each sample is drawn from a window of the next
  /// N, as from a shuffle buffer; cheaper for what is read in order, and less random.
  std::int64_t buffer = 0;
  /// Of the order alone; absent: the run's seed.
  std::optional<std::uint64_t> seed;
};

/// Sample numbers of epoch `epoch` in the order of training; a permutation of [0, samples). `samples` is below 2^31.
std::vector<std::int32_t> shuffled_order(std::int64_t samples, std::int64_t buffer, std::uint64_t seed,
                                         std::int64_t epoch);

}  // namespace bantam
