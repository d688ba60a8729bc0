// Resampling of decoded images.
#pragma once

#include "bantam/data/images/image.h"

namespace bantam {

/// Writes `sampling` of `in` to `out` (another object). A window of the wanted size is copied exactly. Bilinear values
/// are those of a triangle filter in both directions, horizontal first, rounded to nearest between the passes and at
/// the end; the same bits on every CPU. Pixels outside the window are not read.
void resample(const Image& in, const Sampling& sampling, Interpolation interpolation, Image& out);

/// The same, bilinear, of images of float32 values (four bytes a channel), in float; not rounded.
void resample_values(const Image& in, const Sampling& sampling, Image& out);

}  // namespace bantam
