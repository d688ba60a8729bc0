// How masked_gradient is cut into tiles, parts of sums and chunks of rows: by shape only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/partial_sums.h"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/matmul/matmul.h"
#include "bantam/kernels/pointwise/masked_gradient.h"
#include "bantam/kernels/pointwise/pointwise_parts.h"
#include "bantam/memory/device/reference_gpu.h"

namespace bantam::kernels {

/// Shapes and types that the kernels on CUDA compute.
constexpr bool masked_gradient_fits(const PointwiseShape& s, DType dtype) {
  return (dtype == DType::float16 || dtype == DType::bfloat16) && s.rows > 0 && s.in > 0 && s.in % 128 == 0 &&
         s.out > 0 && s.out % 64 == 0 && s.out <= 512;
}

/// The wgmma kernel's cut of dz (rows, in): a block keeps the weights of 128 columns and iterates over tiles of rows,
/// a warpgroup each.
struct MaskedGradientTiles {
  static constexpr std::int64_t kRows = 64, kColumns = 128, kWarpgroups = 2;
  std::int64_t tiles = 0, column_blocks = 0, row_blocks = 0;

  explicit constexpr MaskedGradientTiles(const PointwiseShape& s)
      : tiles((s.rows + kRows - 1) / kRows),
        column_blocks(s.in / kColumns),
        row_blocks(std::clamp<std::int64_t>(kReferenceMultiprocessors / std::max<std::int64_t>(column_blocks, 1), 1,
                                            std::max<std::int64_t>((tiles + 1) / kWarpgroups, 1))) {}
  /// Parts of Σ dz, (parts, in): one a warpgroup.
  constexpr std::int64_t parts() const { return kWarpgroups * row_blocks; }
};
static_assert(2 * kReferenceMultiprocessors <= kColumnBlocks, "merge_parts adds all parts");

/// Where no kernel does all: dy·w of so many rows at a time, in float32, then a pass that adds the addend, masks and
/// sums. The workspace: products (rows, in), partial sums (parts, in), the GEMM's own scratch.
struct MaskedGradientChunks {
  std::int64_t rows = 0;
  std::size_t product_bytes = 0, partial_bytes = 0, gemm_bytes = 0;

  MaskedGradientChunks(const PointwiseShape& s, DType dtype, DeviceKind target) {
    constexpr std::int64_t kMostBytes = std::int64_t{16} << 20;  // stays in a GPU's second-level cache
    const bool cuda = target == DeviceKind::cuda;
    rows = cuda ? std::clamp<std::int64_t>(kMostBytes / (4 * s.in), 1, s.rows) : s.rows;
    product_bytes = aligned_bytes(4 * rows * s.in);
    partial_bytes = aligned_bytes(4 * s.in * (cuda ? column_parts(rows, s.in) : sum_parts(rows, s.in, target)));
    gemm_bytes =
        matmul_workspace_bytes(pointwise_grad_input_product({rows, s.in, s.out}), dtype, DType::float32, target);
  }
  std::size_t bytes() const { return product_bytes + partial_bytes + gemm_bytes; }
};

/// A workspace cut that way.
struct MaskedGradientScratch {
  MaskedGradientChunks chunks;
  float *product, *partials;
  Workspace gemm;

  MaskedGradientScratch(const PointwiseShape& s, DType dtype, DeviceKind target, Workspace workspace)
      : chunks(s, dtype, target) {
    WorkspaceCutter cutter(workspace);
    product = cutter.cut<float>(chunks.product_bytes);
    partials = cutter.cut<float>(chunks.partial_bytes);
    gemm = {cutter.cut<char>(chunks.gemm_bytes), chunks.gemm_bytes};
  }
};

}  // namespace bantam::kernels
