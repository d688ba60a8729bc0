// Image: a decoded picture of any size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bantam/data/formats/sample_reader.h"

namespace bantam {

/// Rows of pixels of interleaved channels, uint8. A worker keeps one and fills it again: `reshape` releases nothing.
struct Image {
  ImageSize size;
  std::int64_t channels = 0;
  std::vector<std::uint8_t> pixels;

  std::size_t row_bytes() const { return static_cast<std::size_t>(size.width * channels); }
  void reshape(ImageSize to, std::int64_t to_channels) {
    size = to;
    channels = to_channels;
    pixels.resize(static_cast<std::size_t>(size.height) * row_bytes());
  }
};

/// A rectangle of pixels.
struct PixelBox {
  std::int64_t top = 0, left = 0;
  ImageSize size;
};

/// How values between pixels are found.
enum class Interpolation : std::uint8_t {
  bilinear,  ///< a triangle filter, widened by the factor of reduction (antialiased), as Pillow's and torchvision's
  nearest    ///< the pixel whose area holds the place: for masks of class numbers
};

}  // namespace bantam
