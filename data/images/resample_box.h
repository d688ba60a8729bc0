// Resampling of what decoding has already cut out, and perhaps reduced.
#pragma once

#include "bantam/data/images/image.h"

namespace bantam {

/// Where a window starts in an image at 1 / denominator that was cut out around it: in pixels of full size, less than
/// one of the reduced image.
struct ReducedWindow {
  std::int64_t top = 0, left = 0;
  std::int64_t denominator = 1;
};

/// As `resample`, bilinear: `in` shows the window of `sampling`, and no more than the pixels that it touches.
void resample_reduced(const Image& in, const ReducedWindow& place, const Sampling& sampling, Image& out);

}  // namespace bantam
