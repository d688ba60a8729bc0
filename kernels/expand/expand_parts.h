// The GEMMs of the family, their operands, and what its scratch memory holds: by shape only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/kernels/common/partial_sums.h"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/expand/expand.h"
#include "bantam/kernels/matmul/matmul.h"
#include "bantam/kernels/pointwise/pointwise_parts.h"
#include "bantam/memory/device/reference_gpu.h"

namespace bantam::kernels {

/// Rows of a warpgroup's tile in the wgmma kernels.
inline constexpr std::int64_t kExpandTileRows = 64;

/// Rows of c3 that expand_sum computes at once where it runs as a GEMM and a pass: 16 MiB, which stay in a GPU's
/// second-level cache.
inline std::int64_t expand_chunk_rows(const ExpandShape& s) {
  constexpr std::int64_t kMostBytes = std::int64_t{16} << 20, kSize = 2;  // of a half type
  return std::min(std::max<std::int64_t>(kMostBytes / (kSize * std::max<std::int64_t>(s.out, 1)), 1), s.rows);
}
/// A chunk's GEMM, c3 = ã·wᵀ.
inline MatmulShape expand_chunk_product(const ExpandShape& s, std::int64_t rows) {
  return {.m = rows, .n = s.out, .k = s.in, .transpose_b = true};
}
/// Bytes of a chunk, which lies first in the workspace.
inline std::size_t expand_chunk_bytes(const ExpandShape& s, DType dtype) {
  return aligned_bytes(expand_chunk_rows(s) * s.out * static_cast<std::int64_t>(size_of(dtype)));
}
/// Scratch bytes of expand_sum by a GEMM and a pass: a chunk of c3, then the GEMM's.
inline std::size_t expand_sum_workspace_bytes(const ExpandShape& s, DType dtype, DeviceKind target) {
  return expand_chunk_bytes(s, dtype) +
         matmul_workspace_bytes(expand_chunk_product(s, expand_chunk_rows(s)), dtype, dtype, target);
}

/// Warpgroups of a block of the wgmma kernel that computes ã with its moments, each with tiles of 64 rows; 0: it does
/// not support this width.
constexpr std::int64_t expand_centre_warpgroups(std::int64_t in) { return in == 64 ? 4 : in == 128 ? 2 : 0; }
/// That kernel's blocks: as many parts have the Gram matrix and the sums.
inline std::int64_t expand_centre_blocks(const ExpandShape& s) {
  const std::int64_t tiles = (s.rows + kExpandTileRows - 1) / kExpandTileRows, groups = expand_centre_warpgroups(s.in);
  return groups == 0 ? 0 : std::min(kReferenceMultiprocessors, (tiles + groups - 1) / groups);
}
/// The scratch memory of that kernel, in this order: (blocks, in, in) and (blocks, in) float32.
struct ExpandCentreScratch {
  std::size_t gram, sums, bytes;

  explicit ExpandCentreScratch(const ExpandShape& s)
      : gram(aligned_bytes(4 * expand_centre_blocks(s) * s.in * s.in)),
        sums(aligned_bytes(4 * expand_centre_blocks(s) * s.in)),
        bytes(gram + sums) {}
};

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

/// ãᵀ·ã (in, in), and with W in float32 W·C (out, in) and Wᵀ·diag(s)·W (in, in).
inline MatmulShape expand_gram_product(const ExpandShape& s) { return {s.in, s.in, s.rows, true, false}; }
inline MatmulShape expand_statistics_product(const ExpandShape& s) { return {s.out, s.in, s.in, false, false}; }
inline MatmulShape expand_slope_product(const ExpandShape& s) { return {s.in, s.in, s.out, true, false}; }

/// The scratch memory of expand_statistics: W in float32, then that of its GEMM.
struct ExpandStatisticsScratch {
  std::size_t weights, product, bytes;

  ExpandStatisticsScratch(const ExpandShape& s, DeviceKind target)
      : weights(aligned_bytes(4 * s.out * s.in)),
        product(matmul_workspace_bytes(expand_statistics_product(s), DType::float32, DType::float32, target)),
        bytes(weights + product) {}
};

/// Scratch bytes of the gradient of ã: on the CPU all rows of both products, and a GEMM's.
inline std::size_t expand_gradient_bytes(const ExpandShape& s, DType dtype, DeviceKind target) {
  if (target == DeviceKind::cuda) return expand_reduce_workspace_bytes(s, dtype);
  const auto matmul_bytes = [&](std::int64_t depth) {
    return matmul_workspace_bytes(expand_reduce_product(s, s.rows, depth), dtype, DType::float32, target);
  };
  return 2 * aligned_bytes(4 * s.rows * s.in) + std::max(matmul_bytes(s.in), matmul_bytes(s.out));
}

/// The scratch memory of expand_backward, in this order.
struct ExpandBackwardScratch {
  std::size_t p, weights, weighted;  ///< P, W and diag(s)·W: (out, in) float32 each; or parts of the row for W
  std::size_t slope;                 ///< M (in, in) float32; or parts of the row
  std::size_t vectors;               ///< (3, out) float32: s, the largest |w| of a row, Σdz/rows
  std::size_t stacked, scales, row;  ///< ExpandReduceOperands
  std::size_t rest, bytes;           ///< of the GEMMs and of what follows them; all

  ExpandBackwardScratch(const ExpandShape& s, DType dtype, DeviceKind target)
      : p(aligned_bytes(4 * s.out * s.in)),
        weights(p),
        weighted(p),
        slope(aligned_bytes(4 * s.in * s.in)),
        vectors(aligned_bytes(12 * s.out)),
        stacked(aligned_bytes((s.in + s.out) * s.in * static_cast<std::int64_t>(size_of(dtype)))),
        scales(aligned_bytes(8)),
        row(aligned_bytes(4 * s.in)),
        rest(std::max({matmul_workspace_bytes(pointwise_grad_weight_product(s), dtype, DType::float32, target),
                       matmul_workspace_bytes(expand_slope_product(s), DType::float32, DType::float32, target),
                       expand_gradient_bytes(s, dtype, target)})),
        bytes(p + weights + weighted + slope + vectors + stacked + scales + row + rest) {}
};

/// The arrays of expand_backward in a workspace.
struct ExpandBackwardArrays {
  float *p, *weights, *weighted, *slope, *vectors;
  void* stacked;
  float *scales, *row;
  Workspace rest;

  ExpandBackwardArrays(const ExpandBackwardScratch& scratch, Workspace workspace) {
    WorkspaceCutter cutter(workspace);
    p = cutter.cut<float>(scratch.p);
    weights = cutter.cut<float>(scratch.weights);
    weighted = cutter.cut<float>(scratch.weighted);
    slope = cutter.cut<float>(scratch.slope);
    vectors = cutter.cut<float>(scratch.vectors);
    stacked = cutter.cut<char>(scratch.stacked);
    scales = cutter.cut<float>(scratch.scales);
    row = cutter.cut<float>(scratch.row);
    rest = {cutter.cut<char>(scratch.rest), scratch.rest};
  }
  ExpandReduceOperands operands() const { return {stacked, scales, row}; }
};

}  // namespace bantam::kernels
