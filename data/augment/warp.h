// Internal: affine maps of images and masks, as torchvision's affine and rotate of tensors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bantam/data/augment/pixels.h"
#include "bantam/data/images/image.h"

namespace bantam {

/// A map of the image onto itself, about its centre or another point.
struct AffineMap {
  double degrees = 0.0;                         ///< clockwise, as y points down
  double translate_x = 0.0, translate_y = 0.0;  ///< in pixels
  double scale = 1.0;
  double shear_x = 0.0, shear_y = 0.0;  ///< in degrees
  bool about_corner = false;            ///< the upper left one
};

/// The values of pixels that the map brings in from outside the image.
struct WarpFill {
  std::vector<std::uint8_t> image = {0};  ///< one value for all channels, or one a channel
  std::int32_t mask = 255;                ///< of integer masks; those of floats get 0
};

/// Each pixel becomes that of the place which the map brings to it.
void warp(const PixelView& image, const AffineMap& map, Interpolation interpolation,
          std::span<const std::uint8_t> fill);
/// The nearest element.
void warp(const MaskView& mask, const AffineMap& map, std::int32_t fill);
/// The image and its masks.
void warp(const AugmentedSample& sample, const PixelView& image, const AffineMap& map, Interpolation interpolation,
          const WarpFill& fill);

}  // namespace bantam
