// Internal: the operations that trivial_augment and rand_augment draw.
#pragma once

#include <cstdint>

#include "bantam/data/augment/options.h"

namespace bantam {

enum class AugmentOperation : std::uint8_t {
  identity,
  shear_x,      ///< magnitude: columns a row
  shear_y,      ///< rows a column
  translate_x,  ///< pixels, cut to a whole number
  translate_y,
  rotate,      ///< degrees against the clock
  brightness,  ///< the factor is 1 + magnitude, here and up to sharpness
  color,
  contrast,
  sharpness,
  posterize,  ///< bits that stay
  solarize,   ///< values from it on are inverted
  autocontrast,
  equalize
};

struct DrawnOperation {
  AugmentOperation operation = AugmentOperation::identity;
  double magnitude = 0.0;
};

/// Changes the image; the masks too where the operation moves pixels.
void apply_operation(const AugmentedSample& sample, const DrawnOperation& drawn, Interpolation interpolation,
                     const WarpFill& fill);

}  // namespace bantam
