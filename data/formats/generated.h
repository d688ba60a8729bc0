// The generated data set: ten classes of drawn shapes and textures, 32 by 32 in colour. Needs no files; the same for
// the same seed.
#pragma once

#include <cstdint>

#include "bantam/data/formats/sample_reader.h"

namespace bantam {

/// disc, ring, square, triangle, cross, star; horizontal and vertical stripes, checkerboard, dots: each with its own
/// place, size, turn, colours, background, clutter, noise and sometimes an occluder.
struct GeneratedOptions {
  std::int64_t train_samples = 40000;
  std::int64_t test_samples = 4000;
  /// Of the drawings. Kept apart from the run's seed, so that runs of different seeds see the same data.
  std::uint64_t seed = 1;
};

/// Readers that draw an image whenever it is read; image i depends on (seed, split, i) only. Splits never share an
/// image's random numbers. Targets: "labels", a class number.
SampleSplits generated_readers(const GeneratedOptions& options);

}  // namespace bantam
