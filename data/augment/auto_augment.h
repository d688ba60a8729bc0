// Internal: the operations that trivial_augment and rand_augment draw.
#pragma once

#include <cstdint>
#include <span>

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

/// An operation of a table, and its magnitude in the first bin of 31 and in the last one. Of either sign where `both`
/// says so.
struct OperationRange {
  AugmentOperation operation;
  double first, last;
  bool both;

  double magnitude(int bin) const;
};

inline constexpr int kMagnitudeBins = 31;

/// torchvision's tables: of TrivialAugmentWide, and of RandAugment, whose translations are shares of the image's side.
std::span<const OperationRange> trivial_operations();
std::span<const OperationRange> rand_operations();

struct DrawnOperation {
  AugmentOperation operation = AugmentOperation::identity;
  double magnitude = 0.0;
};

/// Changes the image; the masks too where the operation moves pixels.
void apply_operation(const AugmentedSample& sample, const DrawnOperation& drawn, Interpolation interpolation,
                     const WarpFill& fill);

}  // namespace bantam
