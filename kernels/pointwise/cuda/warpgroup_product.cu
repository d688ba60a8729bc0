// The wgmma kernel's launches: its tensor maps, and its shared memory. Compiled for 90a only, whatever the build is
// for.
#include "bantam/kernels/common/cuda/shared_bytes.h"
#include "bantam/kernels/common/cuda/tensor_boxes.h"
#include "bantam/kernels/pointwise/cuda/warpgroup_product.cuh"
#include "bantam/kernels/pointwise/cuda/warpgroup_product.h"

namespace bantam::kernels::cuda {
namespace {

/// The rows of x that y has rows of.
TensorBoxes pixels_of(const WarpgroupProduct& s, const void* x) {
  if (s.stride == 1)
    return {.data = x, .b = s.rows, .c = s.in, .a_stride = s.rows * s.in, .b_stride = s.in, .box_b = s.tile_rows()};
  return {.data = x,
          .a = s.rows / s.out_w,
          .b = s.out_w,
          .c = s.in,
          .a_stride = s.stride * s.in_w * s.in,
          .b_stride = s.stride * s.in,
          .box_a = s.tile_rows() / s.out_w,
          .box_b = s.out_w};
}

template <class T, int kColumns, bool kNormed>
bool launch(const Exec& exec, const WarpgroupProduct& s, DType dtype, const NormOperand& x, const void* w, void* y,
            const PartMoments& moments) {
  using Tile = WarpgroupTile<kColumns>;
  constexpr int kSharedBytes = 227 << 10;
  const int depths = static_cast<int>((s.in + Tile::kDepth - 1) / Tile::kDepth);
  const int left = kSharedBytes - Tile::bytes_without_stages(depths, kNormed ? static_cast<int>(s.in) : 0);
  const int round = Tile::kWarpgroups * depths;  // loads of a tile for each warpgroup
  const int room = std::min(left / Tile::kStageBytes, Tile::kMostStages);
  const int stages = room < round ? room : room - room % round;
  const WarpgroupCut cut{.rows = s.rows,
                         .in = static_cast<int>(s.in),
                         .out = static_cast<int>(s.out),
                         .depths = depths,
                         .tiles = static_cast<int>(s.tiles()),
                         .tile_rows = static_cast<int>(s.tile_rows()),
                         .column_blocks = static_cast<int>(s.column_blocks()),
                         .stages = stages,
                         // A barrier tells only odd rounds of the ring from even ones, so who waits for a stage must
                         // know that its copy of the round before has come: it waited for that itself, where a round
                         // is a whole number of everybody's tiles, or all earlier ones were waited for, in turn.
                         .in_turn = stages % round != 0,
                         .step_b = s.stride == 1 ? static_cast<int>(s.tile_rows()) : 0,
                         .step_a = s.stride == 1 ? 0 : static_cast<int>(s.tile_rows() / s.out_w),
                         .partials = moments.moments,
                         .counts = moments.counts,
                         .norm = affine_of(x),
                         .clamp = Clamp::of(x.affine.activation)};
  CUtensorMap x_map, w_map, y_map;
  const TensorBoxes weights{
      .data = w, .b = s.out, .c = s.in, .a_stride = s.out * s.in, .b_stride = s.in, .box_b = kColumns};
  const TensorBoxes result{.data = y, .b = s.rows, .c = s.out, .b_stride = s.out, .box_b = s.tile_rows()};
  if (!pixels_of(s, x.x).describe(dtype, 3, x_map) || !weights.describe(dtype, 3, w_map) ||
      !result.describe(dtype, 2, y_map))
    return false;
  const int bytes = kSharedBytes - left + stages * Tile::kStageBytes;
  const auto kernel = warpgroup_product_kernel<T, kColumns, kNormed>;
  allow_shared_bytes(exec, kernel, bytes);
  const auto blocks = static_cast<unsigned>(s.row_blocks() * s.column_blocks());
  launch_early_with_shared(exec, kernel, blocks, Tile::kThreads, bytes, x_map, w_map, y_map, cut);
  return true;
}

template <class T, bool kNormed>
bool run(const Exec& exec, const WarpgroupProduct& s, DType dtype, const NormOperand& x, const void* w, void* y,
         const PartMoments& moments) {
  if (s.columns() == 64) return launch<T, 64, kNormed>(exec, s, dtype, x, w, y, moments);
  if (s.columns() == 128) return launch<T, 128, kNormed>(exec, s, dtype, x, w, y, moments);
  return launch<T, 256, kNormed>(exec, s, dtype, x, w, y, moments);
}

template <class T>
bool run(const Exec& exec, const WarpgroupProduct& s, DType dtype, const NormOperand& x, const void* w, void* y,
         const PartMoments& moments) {
  return x.normalised() ? run<T, true>(exec, s, dtype, x, w, y, moments)
                        : run<T, false>(exec, s, dtype, x, w, y, moments);
}

}  // namespace

bool warpgroup_product(const Exec& exec, const WarpgroupProduct& s, DType dtype, const NormOperand& x, const void* w,
                       void* y, const PartMoments& moments) {
  if (s.rows == 0 || !has_warpgroups(exec) || !packs_aligned<uint4, 1>(x.x, w, y)) return false;
  return dtype == DType::float16 ? run<__half>(exec, s, dtype, x, w, y, moments)
                                 : run<__nv_bfloat16>(exec, s, dtype, x, w, y, moments);
}

}  // namespace bantam::kernels::cuda
