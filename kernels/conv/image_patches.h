// Convolutions that cut an image into patches, as the stems of vision transformers and ConvNeXt do, by CUDA kernels of
// our own: which. By shape only, known also where there is no CUDA.
#pragma once

#include "bantam/kernels/conv/conv2d.h"
#include "bantam/kernels/conv/image_parts.h"

namespace bantam::kernels::cuda {

/// Whether forward and grad_weight gather patches and run GEMMs instead of a library's kernels, which pad so few
/// channels: up to 4 input channels, windows that neither overlap nor leave gaps, no padding, and none of the smaller
/// windows that have kernels of their own (is_image_convolution). Gradients of images are the library's.
inline bool cuts_patches(const Conv2dShape& s, DType dtype) {
  return s.groups == 1 && s.in_channels <= 4 && s.kernel_w > 1 && s.kernel_h == s.stride_h &&
         s.kernel_w == s.stride_w && s.in_w % s.kernel_w == 0 && s.dilation_h == 1 && s.dilation_w == 1 &&
         s.pad_top == 0 && s.pad_bottom == 0 && s.pad_left == 0 && s.pad_right == 0 && !is_image_convolution(s, dtype);
}

/// The same convolution with a row of a patch as one pixel of kernel_w · in_channels channels: x and w have this order
/// in memory already.
inline Conv2dShape with_rows_as_pixels(Conv2dShape s) {
  s.in_w /= s.kernel_w;
  s.in_channels *= s.kernel_w;
  s.kernel_w = s.stride_w = 1;
  return s;
}

}  // namespace bantam::kernels::cuda
