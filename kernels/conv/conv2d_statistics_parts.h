// How the statistics of a convolution's output are cut into parts, and what its workspace holds: by shape only.
#pragma once

#include "bantam/kernels/common/moment_parts.h"
#include "bantam/kernels/conv/conv2d_pointwise.h"
#include "bantam/kernels/conv/conv2d_statistics.h"
#include "bantam/kernels/conv/image_parts.h"
#include "bantam/kernels/conv/warpgroup_conv3x3_parts.h"
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
  const PointwiseShape product = pointwise_shape(s);
  return is_pointwise(s) && pointwise_supports(product, dtype) ? product : PointwiseShape{};
}

/// Scratch bytes of its moments; 0 where it is none.
inline std::size_t pointwise_moments_bytes(const Conv2dShape& s, DType dtype) {
  const PointwiseShape product = pointwise_with_moments(s, dtype);
  return product.rows > 0 ? cuda::part_moments_bytes(pointwise_parts(product), product.out) : 0;
}

/// The convolution as a wgmma problem; no rows where it is none: float16 or bfloat16, channels in eights, without
/// padding and groups, at stride 1, or 2 where images are of even height and at most 128 wide; 64 to 256 channels in,
/// or 512 at stride 1 where no more than eight columns of blocks read each tile of x (else cuDNN and a pass after it
/// are faster).
inline WarpgroupProduct warpgroup_product_of(const Conv2dShape& s, DType dtype) {
  const bool plain = s.kernel_h == 1 && s.kernel_w == 1 && s.groups == 1 && s.stride_h == s.stride_w &&
                     s.pad_top == 0 && s.pad_bottom == 0 && s.pad_left == 0 && s.pad_right == 0;
  const bool strided = s.stride_h == 2 && s.in_h % 2 == 0 && s.out_w() <= WarpgroupProduct::kTileRows;
  const bool half = dtype == DType::float16 || dtype == DType::bfloat16;
  if (!plain || !half || (s.stride_h != 1 && !strided)) return {};
  if (s.in_channels % 8 != 0 || s.out_channels % 8 != 0 || s.x_elements() <= 0 || s.y_elements() <= 0) return {};
  const WarpgroupProduct product{
      s.batch * s.out_h() * s.out_w(), s.in_channels, s.out_channels, s.stride_h, s.in_w, s.out_w()};
  const bool deep = s.in_channels > 256, wins = !deep || (s.stride_h == 1 && product.column_blocks() <= 8);
  const bool fits = s.in_channels >= WarpgroupProduct::kLeastIn && s.in_channels <= WarpgroupProduct::kMostIn;
  return wins && fits ? product : WarpgroupProduct{};
}

/// Scratch bytes of the moments of the wgmma kernel; 0 where it does not run.
inline std::size_t warpgroup_moments_bytes(const Conv2dShape& s, DType dtype) {
  const WarpgroupProduct product = warpgroup_product_of(s, dtype);
  return product.rows > 0 ? cuda::part_moments_bytes(product.parts(), product.out) : 0;
}

/// The convolution as a 3x3 one that the wgmma kernels compute with its statistics; no batch where they do not.
inline WarpgroupConv3x3 conv3x3_with_moments(const Conv2dShape& s, DType dtype) {
  return preferred_warpgroup_conv3x3(s, dtype, Conv2dPass::forward, Conv3x3Use::with_statistics);
}

/// Scratch bytes of its moments; 0 where it is none.
inline std::size_t conv3x3_moments_bytes(const Conv2dShape& s, DType dtype) {
  const WarpgroupConv3x3 problem = conv3x3_with_moments(s, dtype);
  return problem.batch > 0 ? cuda::part_moments_bytes(problem.parts(), problem.out) : 0;
}

}  // namespace bantam::kernels
