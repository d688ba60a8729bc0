// 1x1 convolutions that the wgmma kernel computes, and how they are cut into tiles and parts: by shape only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/base/dtype.h"
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

}  // namespace bantam::kernels
