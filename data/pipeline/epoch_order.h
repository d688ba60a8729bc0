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
  /// Seeds the order alone; absent: the run's seed does.
  std::optional<std::uint64_t> seed;
};

/// Which samples an epoch has, and how many.
struct EpochSampling {
  enum class Draw : std::uint8_t {
    each,      ///< all, one after the other
    balanced,  ///< every class equally often, each of its samples as often as the others
    weighted   ///< in proportion to the weights that the data have
  };
  Draw draw = Draw::each;
  std::int64_t repeat = 1;   ///< an epoch has so many times the set's samples
  std::int64_t samples = 0;  ///< an epoch has so many samples, whatever the set has; 0: repeat × the set's

  std::int64_t epoch_samples(std::int64_t set) const { return samples > 0 ? samples : repeat * set; }
};

/// Weights and groups for draws other than Draw::each; both are empty for that one.
struct SampleWeights {
  std::vector<float> weights;        ///< a sample; finite, not negative, not all zero
  std::vector<std::int32_t> groups;  ///< a sample: draws are spread evenly over groups; or empty
};

/// Weights with which each group is drawn equally often. Numbers of groups are not negative.
SampleWeights balanced_weights(std::vector<std::int32_t> groups);

/// `count` sample numbers for epoch `epoch`, in a random order. Sample i is drawn count · weight_i / Σ weights times,
/// rounded up or down at random (systematic sampling of a shuffled list), so that even the mean over few epochs is near
/// the weights. Counts of groups are rounded likewise.
std::vector<std::int32_t> weighted_order(const SampleWeights& weights, std::int64_t count, std::uint64_t seed,
                                         std::int64_t epoch);

/// Sample numbers `first` to `first + count` of the endless row of epochs of all `samples`, shuffled one by one as by
/// shuffled_order, or in order where `shuffle` is null. An epoch of `samples` is shuffled_order's.
std::vector<std::int32_t> consecutive_order(std::int64_t samples, std::int64_t first, std::int64_t count,
                                            const ShuffleOptions* shuffle, std::uint64_t seed);

/// How often each place's sample came before it in the order.
std::vector<std::int32_t> passes_of(const std::vector<std::int32_t>& order, std::int64_t samples);

/// Sample numbers of epoch `epoch` in the order of training; a permutation of [0, samples). `samples` is below 2^31.
std::vector<std::int32_t> shuffled_order(std::int64_t samples, std::int64_t buffer, std::uint64_t seed,
                                         std::int64_t epoch);

}  // namespace bantam
