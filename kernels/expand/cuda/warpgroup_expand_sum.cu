// The launches of expand_sum's wgmma kernel: its cut, its tensor maps and its shared memory. Compiled for 90a only,
// whatever the build is for.
#include "bantam/kernels/common/cuda/tensor_boxes.h"
#include "bantam/kernels/expand/cuda/warpgroup_expand.h"
#include "bantam/kernels/expand/cuda/warpgroup_expand_sum.cuh"
#include "bantam/kernels/norm/cuda/clamped_norm.cuh"

namespace bantam::kernels::cuda {
namespace {

using Tile = ExpandSumTile;

/// Shared memory of a launch: as many tile buffers as leave eight stages, and whole rounds of stages where they fit.
struct Rings {
  static constexpr int kMostBytes = 227 << 10, kLeastStages = 8;
  int buffers = Tile::kMostBuffers, stages = 0, bytes = 0;
  bool in_turn = false;

  explicit Rings(int depths) {
    const auto room = [&] { return (kMostBytes - Tile::bytes_without_stages(depths, buffers)) / Tile::kStageBytes; };
    while (buffers > 1 && room() < kLeastStages) --buffers;
    const int most = std::min(room(), Tile::kMostStages), round = Tile::kWarpgroups * depths;
    stages = most < round ? most : most - most % round;
    in_turn = stages % round != 0;  // as warpgroup_product.cu says
    bytes = Tile::bytes_without_stages(depths, buffers) + stages * Tile::kStageBytes;
  }
};

template <class T, bool kNormedResidual>
bool launch(const Exec& exec, const ExpandShape& s, DType dtype, const NormOperand& product, const void* w,
            const NormOperand& residual, void* y, std::uint8_t* mask) {
  const int depths = static_cast<int>(s.in / Tile::kDepth);
  const int tiles = static_cast<int>((s.rows + Tile::kRows - 1) / Tile::kRows);
  const int column_blocks = static_cast<int>(s.out / Tile::kColumns);
  const Rings rings(depths);
  const ExpandSumCut cut{.rows = s.rows,
                         .out = static_cast<int>(s.out),
                         .depths = depths,
                         .tiles = tiles,
                         .column_blocks = column_blocks,
                         .stages = rings.stages,
                         .buffers = rings.buffers,
                         .in_turn = rings.in_turn,
                         .norm = affine_of(product),
                         .other = affine_of(residual),
                         .mask = mask};
  CUtensorMap centred_map, w_map, residual_map, y_map;
  if (!TensorBoxes::of_matrix(product.x, s.rows, s.in).describe(dtype, 2, centred_map) ||
      !TensorBoxes::of_matrix(w, s.out, s.in, Tile::kColumns).describe(dtype, 2, w_map) ||
      !TensorBoxes::of_matrix(residual.x, s.rows, s.out).describe(dtype, 2, residual_map) ||
      !TensorBoxes::of_matrix(y, s.rows, s.out).describe(dtype, 2, y_map))
    return false;
  // As many blocks as fill a large GPU, one on a multiprocessor.
  const int row_blocks = std::clamp(static_cast<int>(kReferenceMultiprocessors) / column_blocks, 1,
                                    (tiles + Tile::kWarpgroups - 1) / Tile::kWarpgroups);
  launch_early_with_shared(exec, warpgroup_expand_sum_kernel<T, kNormedResidual>,
                           static_cast<unsigned>(row_blocks * column_blocks), Tile::kThreads,
                           static_cast<std::size_t>(rings.bytes), centred_map, w_map, residual_map, y_map, cut);
  return true;
}

template <class T>
bool run(const Exec& exec, const ExpandShape& s, DType dtype, const NormOperand& product, const void* w,
         const NormOperand& residual, void* y, std::uint8_t* mask) {
  return residual.normalised() ? launch<T, true>(exec, s, dtype, product, w, residual, y, mask)
                               : launch<T, false>(exec, s, dtype, product, w, residual, y, mask);
}

}  // namespace

bool warpgroup_expand_sum(const Exec& exec, const ExpandShape& s, DType dtype, const NormOperand& product,
                          const void* w, const NormOperand& residual, void* y, std::uint8_t* mask) {
  constexpr std::int64_t kMostIn = 512;
  if (s.rows <= 0 || s.in <= 0 || s.in % Tile::kDepth != 0 || s.in > kMostIn || s.out <= 0 ||
      s.out % Tile::kColumns != 0 || !is_half(dtype) || !has_warpgroups(exec) ||
      !packs_aligned<uint4, 1>(product.x, w, residual.x, y) || !packs_aligned<std::uint32_t, 1>(mask))
    return false;
  return dtype == DType::float16 ? run<__half>(exec, s, dtype, product, w, residual, y, mask)
                                 : run<__nv_bfloat16>(exec, s, dtype, product, w, residual, y, mask);
}

}  // namespace bantam::kernels::cuda
