// How the statistics of a convolution's output are cut into parts, and what its workspace holds: by shape only.
#pragma once

#include "bantam/kernels/conv/conv2d_statistics.h"
#include "bantam/kernels/conv/conv2d_pointwise.h"
#include "bantam/kernels/conv/image_parts.h"
#include "bantam/kernels/common/moment_parts.h"
#include "bantam/kernels/pointwise/pointwise_parts.h"
#include "bantam/kernels/pointwise/warpgroup_parts.h"

namespace bantam::kernels {

/// y as the input of a batch norm.
inline BatchNormShape output_rows(const Conv2dShape& s) {
  return {.rows = s.batch * s.out_h() * s.out_w(), .channels = s.out_channels};
}

/// Scratch bytes of an image convolution's moments; 0 where it is none.
inline std::size_t image_moments_bytes(const Conv2dShape& s, DType dtype) {
  return cuda::is_image_convolution(s, dtype) ? cuda::part_moments_bytes(cuda::image_parts(s), s.out_channels) : 0;
}

/// A pointwise convolution as a problem of our own GEMM (pointwise_parts.h); no rows where it is none.
inline PointwiseShape pointwise_with_moments(const Conv2dShape& s, DType dtype) {
  const PointwiseShape product{s.batch * s.in_h * s.in_w, s.in_channels, s.out_channels};
  return is_pointwise(s) && pointwise_supports(product, dtype) ? product : PointwiseShape{};
}

/// Scratch bytes of its moments; 0 where it is none.
inline std::size_t pointwise_moments_bytes(const Conv2dShape& s, DType dtype) {
  const PointwiseShape product = pointwise_with_moments(s, dtype);
  return product.rows > 0 ? cuda::part_moments_bytes(pointwise_parts(product), product.out) : 0;
}

/// Scratch bytes of the moments of the wgmma kernel; 0 where it does not run.
inline std::size_t warpgroup_moments_bytes(const Conv2dShape& s, DType dtype) {
  const WarpgroupProduct product = warpgroup_product_of(s, dtype);
  return product.rows > 0 ? cuda::part_moments_bytes(product.parts(), product.out) : 0;
}

}  // namespace bantam::kernels
