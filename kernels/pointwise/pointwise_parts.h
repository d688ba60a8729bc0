// Pointwise convolutions as GEMMs, and how our own kernels cut them into parts: by shape only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/matmul/matmul.h"
#include "bantam/kernels/pointwise/pointwise_norm.h"
#include "bantam/memory/device/reference_gpu.h"

namespace bantam::kernels {

/// Rows of a tile on CUDA, and its columns: 64 where they are enough.
inline constexpr std::int64_t kPointwiseRows = 128;
constexpr std::int64_t pointwise_columns(const PointwiseShape& s) { return s.out <= 64 ? 64 : 128; }

/// Input channels of our own GEMMs: all weights of a block stay in shared memory, and up to here they are bound by
/// bytes. From 256 on cuBLASLt is faster.
inline constexpr std::int64_t kPointwiseMostIn = 128;
constexpr bool pointwise_supports(const PointwiseShape& s, DType dtype) {
  return (dtype == DType::float16 || dtype == DType::bfloat16) && s.rows > 0 && s.in > 0 && s.out > 0 &&
         s.in % 8 == 0 && s.out % 8 == 0 && s.in <= kPointwiseMostIn;
}

/// Parts among which the tiles of rows are distributed in turn: as many as the GPU runs at once, with two blocks on a
/// multiprocessor (three of the narrow ones). A part's moments are (3, out) floats and a count.
inline std::int64_t pointwise_parts(const PointwiseShape& s) {
  const std::int64_t columns = pointwise_columns(s), blocks = kReferenceMultiprocessors * (columns == 64 ? 3 : 2);
  const std::int64_t tiles = (s.rows + kPointwiseRows - 1) / kPointwiseRows;
  const std::int64_t column_blocks = (s.out + columns - 1) / columns;
  return std::clamp<std::int64_t>(blocks / std::max<std::int64_t>(column_blocks, 1), 1,
                                  std::max<std::int64_t>(tiles, 1));
}

/// Whether one kernel computes da and dw: a block has all columns of both matrices.
constexpr bool pointwise_backward_fused(const PointwiseShape& s) { return s.out <= 128 && s.in <= 128; }

/// The weight gradient's cut: tiles of dw, and parts of the rows, whose sums (parts, out, in) stay below 32 MiB.
struct PointwiseGradCut {
  std::int64_t tile_out = 128, tile_in = 128, tiles = 1, parts = 1;
};
inline PointwiseGradCut pointwise_grad_cut(const PointwiseShape& s) {
  constexpr std::int64_t kMostFloats = std::int64_t{1} << 23, kRows = 128;
  PointwiseGradCut cut;
  cut.tile_out = s.out <= 64 && s.in <= 32 ? 64 : 128;
  cut.tile_in = cut.tile_out == 64 ? 32 : s.in <= 64 ? 64 : 128;
  cut.tiles = (s.out + cut.tile_out - 1) / cut.tile_out * ((s.in + cut.tile_in - 1) / cut.tile_in);
  const std::int64_t stages = std::max<std::int64_t>((s.rows + kRows - 1) / kRows, 1);
  cut.parts = std::max<std::int64_t>(
      std::min({2 * kReferenceMultiprocessors / cut.tiles, kMostFloats / (s.out * s.in), stages}), 1);
  return cut;
}

/// y = a·wᵀ, da = dy·w and dw = dyᵀ·a as GEMMs.
inline MatmulShape pointwise_product(const PointwiseShape& s) { return {s.rows, s.out, s.in, false, true}; }
inline MatmulShape pointwise_grad_input_product(const PointwiseShape& s) { return {s.rows, s.in, s.out, false, false}; }
inline MatmulShape pointwise_grad_weight_product(const PointwiseShape& s) { return {s.out, s.in, s.rows, true, false}; }

/// Rows of a and of dy that are computed at once where no kernel of ours computes them as it reads, and their bytes.
struct PointwiseChunks {
  std::int64_t rows = 0;
  std::size_t a_bytes = 0, dy_bytes = 0;
};
inline PointwiseChunks pointwise_chunks(const PointwiseShape& s, DType dtype, DeviceKind target) {
  constexpr std::int64_t kMostBytes = std::int64_t{16} << 20;  // stays in a GPU's second-level cache
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const bool cuda = target == DeviceKind::cuda;
  const std::int64_t rows = cuda ? std::clamp<std::int64_t>(kMostBytes / (size * (s.in + s.out)), 1, s.rows) : s.rows;
  return {rows, aligned_bytes(rows * s.in * size), aligned_bytes(rows * s.out * size)};
}

}  // namespace bantam::kernels
