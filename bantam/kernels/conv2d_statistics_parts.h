// How the statistics of a convolution's output are cut into parts, and what its workspace holds: by shape only.
#pragma once

#include "bantam/kernels/conv2d_statistics.h"
#include "bantam/kernels/cuda/part_moments.h"
#include "bantam/kernels/cuda/small_channels.h"

namespace bantam::kernels {

/// y as a batch norm sees it.
inline BatchNormShape output_rows(const Conv2dShape& s) {
  return {.rows = s.batch * s.out_h() * s.out_w(), .channels = s.out_channels};
}

/// Scratch bytes of an image convolution's moments; 0 where it is none.
inline std::size_t image_moments_bytes(const Conv2dShape& s, DType dtype) {
  return cuda::is_image_convolution(s, dtype) ? cuda::part_moments_bytes(cuda::image_parts(s), s.out_channels) : 0;
}

}  // namespace bantam::kernels
