// The output size of a transposed convolution, and the convolution whose input gradient it computes.
#pragma once

#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/conv/conv2d.h"

namespace bantam::ops {

/// The options of a transposed convolution of an image, except its channels.
struct TransposedWindow {
  Window2d window;
  Extent2d output_padding{0, 0};
};

/// Height and width of the result for an input of this height and width. Throws ShapeError, prefixed by
/// "transposed_conv2d", where extents are not positive, padding is negative, `output_padding` is not smaller than the
/// stride or the dilation, or nothing is left of the image.
Extent2d transposed_output(const TransposedWindow& transposed, std::int64_t in_h, std::int64_t in_w);

/// The convolution of (batch, H', W', filters) to `in` (batch, H, W, C_in) whose input gradient is the transposed
/// convolution, but for rows and columns of zeros at its end, which output padding from the stride on adds. Throws as
/// transposed_output.
kernels::Conv2dShape transposed_conv2d_shape(const Shape& in, std::int64_t filters, const TransposedWindow& transposed,
                                             std::int64_t groups);

}  // namespace bantam::ops
