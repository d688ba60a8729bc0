// The generated data set: ten classes of drawn shapes and textures, 32 by 32 in colour. Needs no files; the same for
// the same seed.
#pragma once

#include <cstdint>

#include "bantam/data/formats/sample_reader.h"

namespace bantam {

/// The labels and targets that a sample has beside its image.
enum class GeneratedLabels : std::uint8_t {
  class_,  ///< labels: its class
  soft,    ///< also targets, float32 (10): 0.8 of its class and 0.2 of the class that is drawn most like it
  pixels,  ///< labels (32, 32): 0 for the background, 1 + the class inside the figure
  values   ///< also targets, float32 (3): x and y of the figure's centre and its size, in half extents of the image
};

/// disc, ring, square, triangle, cross, star; horizontal and vertical stripes, checkerboard, dots: each with its own
/// place, size, turn, colours, background, clutter, noise and sometimes an occluder.
struct GeneratedOptions {
  std::int64_t train_samples = 40000;
  std::int64_t test_samples = 4000;
  /// Seeds the drawings. It is kept apart from the run's seed, so that runs of different seeds see the same data.
  std::uint64_t seed = 1;
  GeneratedLabels labels = GeneratedLabels::class_;
};

/// Readers that draw an image whenever it is read; image i depends on (seed, split, i) only. Splits never share an
/// image's random numbers.
SampleSplits generated_readers(const GeneratedOptions& options);

}  // namespace bantam
