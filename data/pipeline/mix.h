// Mixing: samples of a finished batch mixed in pairs (mixup, cutmix), and class numbers as probabilities (one_hot):
// what a pipeline says of it, what batches then have, and each sample's share and window.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bantam/base/config/config.h"
#include "bantam/base/philox.h"
#include "bantam/data/formats/sample_reader.h"
#include "bantam/kernels/input/mix_batch.h"

namespace bantam {

/// One way of mixing.
struct MixStage {
  double alpha = 1.0;           ///< shares are drawn from Beta(alpha, alpha)
  std::optional<double> share;  ///< the share of samples mixed so; absent: 1, or 1/2 where both ways are there
};

/// A sample is mixed in one way or in none. Without any of it batches have targets as they are stored.
struct MixOptions {
  bool one_hot = false;
  double smoothing = 0.0;  ///< the share of a class number's target that is spread over all classes
  std::optional<MixStage> mixup, cutmix;

  bool mixes() const { return mixup || cutmix; }
  /// Whether batches have float32 targets by it.
  bool any() const { return one_hot || mixes(); }
  double mixup_share() const { return mixup ? mixup->share.value_or(cutmix ? 0.5 : 1.0) : 0.0; }
  double cutmix_share() const { return cutmix ? cutmix->share.value_or(mixup ? 0.5 : 1.0) : 0.0; }
};

/// Read the stages of these names. Throw ConfigError, also where mixup and cutmix have shares beyond 1 together.
void read_one_hot(const ConfigNode& node, MixOptions& options);
void read_mixup(const ConfigNode& node, MixOptions& options);
void read_cutmix(const ConfigNode& node, MixOptions& options);

/// Returns the options for validation samples: none is mixed, but class numbers become probabilities as in training.
MixOptions evaluation_mix(const MixOptions& options);

/// Lists the fields that batches have beside images. With class numbers (labels, one int32 a sample) there are float32
/// `targets` (classes) too, and a mixed sample's label is that of the larger share; stored float32 targets are mixed as
/// they are. Throws ConfigError where there are neither, or others that cannot be mixed.
std::vector<SampleField> batch_targets(const MixOptions& options, const DatasetFacts& facts);

/// Shares and windows: a pure function of seed, epoch and place in the epoch. Thread-safe.
class MixPlanner {
 public:
  /// `images`: of finished batches. Throws ShapeError where they are too large for windows.
  MixPlanner(const MixOptions& options, ImageSize images, std::uint64_t seed);
  /// For samples from `first_place` of the epoch on.
  void plan(std::int64_t epoch, std::int64_t first_place, std::span<kernels::SampleMix> out) const;

 private:
  kernels::SampleMix draw(PhiloxSequence& random) const;
  MixOptions options_;
  ImageSize images_;
  std::uint64_t seed_;
};

}  // namespace bantam
