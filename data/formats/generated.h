// The generated data set: ten classes of drawn shapes and textures, 32 by 32 in colour. Needs no files; the same for
// the same seed.
#pragma once

#include <cstdint>

#include "bantam/data/formats/dataset.h"

namespace bantam {

/// disc, ring, square, triangle, cross, star; horizontal and vertical stripes, checkerboard, dots: each with its own
/// place, size, turn, colours, background, clutter, noise and, sometimes, something in front.
struct GeneratedOptions {
  std::int64_t train_samples = 40000;
  std::int64_t test_samples = 4000;
  /// Of the drawings. Kept apart from the run's seed, so that runs of different seeds see the same data.
  std::uint64_t seed = 1;
  /// Only the first so many training images; 0: all.
  std::int64_t limit = 0;
};

/// Sizes, image shape and class names of the splits, without drawing anything.
DatasetFacts generated_train_facts(const GeneratedOptions& options);
DatasetFacts generated_test_facts(const GeneratedOptions& options);

/// Draws both splits, in parallel; image i depends on (seed, split, i) only. Splits never share an image's random
/// numbers.
DatasetSplits generate_dataset(Runtime& runtime, const GeneratedOptions& options);

}  // namespace bantam
