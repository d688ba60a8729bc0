// Views of finished images: gathered, padded, shifted and mirrored, with the values that they have.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/input/image_batch.h"

namespace bantam::kernels {

/// y (count, height, width, channels), x (…, height, width, channels).
struct ImageViewShape {
  std::int64_t count = 0, height = 0, width = 0, channels = 0;
  PadMode pad_mode = PadMode::zero;  ///< how positions outside the image read: 0, or mirrored without the edge
  /// Output (i, j) reads row i + top, column (flip ? width - 1 - j : j) + left.
  std::int32_t top = 0, left = 0;
  bool flip = false;
  std::int32_t first_row = 0;  ///< with rows: the number of the first image of x
};

/// y[n] is the view of x[rows[n] - first_row], or, where `rows` is null, of x[n]. Of floating types; each value keeps
/// its bits. `rows` (count) in device memory. y must not be x.
using ImageViews = void(const Exec&, const ImageViewShape&, DType dtype, const void* x, const std::int32_t* rows,
                        void* y);

BANTAM_DECLARE_KERNEL(ImageViews, image_views);

}  // namespace bantam::kernels
