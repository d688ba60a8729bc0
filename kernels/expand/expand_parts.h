// How expand_backward's second GEMM is cut, and what its operands are: by shape only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/kernels/common/partial_sums.h"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/expand/expand.h"
#include "bantam/kernels/matmul/matmul.h"
#include "bantam/memory/device/reference_gpu.h"

namespace bantam::kernels {

/// Rows of a tile of the wgmma kernels, for each of the two warpgroups of a block.
inline constexpr std::int64_t kExpandTileRows = 64;

/// The most parts in which Σ dz_before and Σ dz_before·(x - mean) come: those of the wgmma kernel, one a warpgroup and
/// block, or of a pass over rows.
inline std::int64_t expand_reduce_parts() { return 2 * kReferenceMultiprocessors; }
static_assert(2 * kReferenceMultiprocessors <= kColumnBlocks);  // merge_parts (row_sums.cuh) adds no more

/// The operands of da = ([ã | dz]·[-M·s ; (k⊙w)/ρ] with the first products times scales[0] before the second are added)
/// · scales[1] + row, in memory of the device.
struct ExpandReduceOperands {
  const void* stacked = nullptr;  ///< (in + out, in), of the call's dtype: -M·s, then k⊙w/ρ
  const float* scales = nullptr;  ///< (2): 1/(s·ρ), ρ; both powers of two
  const float* row = nullptr;     ///< (in)
};

/// Rows of a chunk where library GEMMs compute da on CUDA: a chunk's two products, float32 (rows, in), take at most 16
/// MiB, so that the L2 cache of most GPUs holds them until they are read.
inline std::int64_t expand_reduce_chunk_rows(const ExpandShape& shape) {
  constexpr std::int64_t kFloats = (std::int64_t{16} << 20) / 4;
  return std::clamp<std::int64_t>(kFloats / (2 * shape.in), 1, std::max<std::int64_t>(shape.rows, 1));
}
/// The product of a chunk of ã or dz, `depth` wide, with its part of the stacked weights.
inline MatmulShape expand_reduce_product(const ExpandShape& shape, std::int64_t rows, std::int64_t depth) {
  return {.m = rows, .n = shape.in, .k = depth};
}

/// Bytes of the arrays in the workspace of expand_reduce.
struct ExpandReduceBytes {
  std::size_t totals = 0, partials = 0, product = 0, matmul = 0;

  static ExpandReduceBytes of(const ExpandShape& shape, DType dtype) {
    const std::int64_t rows = expand_reduce_chunk_rows(shape);
    const auto matmul_bytes = [&](std::int64_t depth) {
      return matmul_workspace_bytes(expand_reduce_product(shape, rows, depth), dtype, DType::float32, DeviceKind::cuda);
    };
    return {.totals = aligned_bytes(2 * shape.in * 4),
            .partials = aligned_bytes(expand_reduce_parts() * 2 * shape.in * 4),
            .product = aligned_bytes(rows * shape.in * 4),
            .matmul = std::max(matmul_bytes(shape.in), matmul_bytes(shape.out))};
  }
};

/// Scratch bytes of expand_reduce on CUDA: by shape and type only, whichever kernel runs.
inline std::size_t expand_reduce_workspace_bytes(const ExpandShape& shape, DType dtype) {
  const ExpandReduceBytes bytes = ExpandReduceBytes::of(shape, dtype);
  return bytes.totals + bytes.partials + 2 * bytes.product + bytes.matmul;
}

}  // namespace bantam::kernels
