// A batch of images element by element, as the contract's formula: the oracle of the tests.
#pragma once

#include <cstdint>

#include "bantam/kernels/input/image_batch.h"

namespace bantam::kernels::reference {

/// Mirrors `position` into [0, extent) without repeating the edge: -1 reads 1, extent reads extent - 2.
inline std::int64_t reflect_position(std::int64_t position, std::int64_t extent) {
  while (extent > 1 && (position < 0 || position >= extent)) {
    if (position < 0) position = -position;
    if (position >= extent) position = 2 * (extent - 1) - position;
  }
  return extent > 1 ? position : 0;
}

/// The stored value at (row, column, channel) of one image, or what padding reads there.
template <class S>
S padded_pixel(const ImageBatchShape& s, const S* image, std::int64_t row, std::int64_t column, std::int64_t channel) {
  if (s.pad_mode == PadMode::reflect) {
    row = reflect_position(row, s.in_h);
    column = reflect_position(column, s.in_w);
  }
  if (row < 0 || row >= s.in_h || column < 0 || column >= s.in_w) return 0;
  return image[(row * s.in_w + column) * s.channels + channel];
}

template <class S, class T>
void image_batch(const ImageBatchShape& s, const S* images, const ImagePlacement* placements, T* y) {
  for (std::int64_t b = 0; b < s.batch; ++b) {
    const ImagePlacement& p = placements[b];
    const S* image = images + p.image * s.in_h * s.in_w * s.channels;
    for (std::int64_t i = 0; i < s.out_h; ++i) {
      for (std::int64_t j = 0; j < s.out_w; ++j) {
        const std::int64_t column = (p.flip ? s.out_w - 1 - j : j) + p.left;
        for (std::int64_t c = 0; c < s.channels; ++c) {
          const std::int64_t factor = s.scales_channels() ? c : 0;
          const T pixel = p.erases(i, j) ? T(s.erased[factor]) : T(padded_pixel(s, image, i + p.top, column, c));
          // Volatile: the product is rounded before the sum, so that T = float computes the contract's bits.
          volatile T product = pixel * T(s.scale[factor]);
          T& value = y[((b * s.out_h + i) * s.out_w + j) * s.channels + c];
          value = product + T(s.shift[factor]);
          if (p.offset != 0.0f || p.factor != 1.0f) value = (value + T(p.offset)) * T(p.factor);
        }
      }
    }
  }
}

}  // namespace bantam::kernels::reference
