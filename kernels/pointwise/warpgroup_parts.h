// 1x1 convolutions that the wgmma kernel computes, and how they are cut into tiles and parts: by shape only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/conv/conv2d.h"
#include "bantam/kernels/pointwise/pointwise_parts.h"
#include "bantam/memory/device/reference_gpu.h"

namespace bantam::kernels {

/// y (rows, out) = x · wᵀ, w (out, in). A row of y is every stride-th pixel of every stride-th image row of x.
struct WarpgroupProduct {
  std::int64_t rows = 0, in = 0, out = 0;
  std::int64_t stride = 1, in_w = 0, out_w = 0;  ///< stride 1: image rows do not matter

  /// Rows of y that a warpgroup computes at a time: 64, or with a stride as many whole image rows as fit.
  std::int64_t tile_rows() const { return stride == 1 ? kTileRows : kTileRows / out_w * out_w; }
  std::int64_t tiles() const { return (rows + tile_rows() - 1) / tile_rows(); }
  /// Columns of a block, whose weights (in, columns) stay in 128 KiB of shared memory.
  std::int64_t columns() const { return out <= 64 ? 64 : out <= 128 || in > 256 ? 128 : 256; }
  std::int64_t column_blocks() const { return (out + columns() - 1) / columns(); }
  /// Blocks that share a column of blocks' tiles: as many as fill a large GPU, one on a multiprocessor.
  std::int64_t row_blocks() const {
    const std::int64_t each = (tiles() + kWarpgroups - 1) / kWarpgroups;
    return std::clamp<std::int64_t>(kReferenceMultiprocessors / std::max<std::int64_t>(column_blocks(), 1), 1,
                                    std::max<std::int64_t>(each, 1));
  }
  /// Parts of the moments: one a warpgroup. Part p has tiles p, p + parts, ...
  std::int64_t parts() const { return row_blocks() * kWarpgroups; }

  static constexpr std::int64_t kTileRows = 64, kLeastIn = 64, kMostIn = 512;
  static constexpr std::int64_t kWarpgroups = 2;  ///< of a block, that multiply
};

/// The convolution after a norm as a wgmma problem; no rows where the mma.sync kernel is faster.
inline WarpgroupProduct warpgroup_product_of(const PointwiseShape& s) {
  return s.in >= WarpgroupProduct::kLeastIn ? WarpgroupProduct{s.rows, s.in, s.out} : WarpgroupProduct{};
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

}  // namespace bantam::kernels
