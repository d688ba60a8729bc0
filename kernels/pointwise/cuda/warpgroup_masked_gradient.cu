// The launch of the masked input gradient with wgmma: its tensor maps, and its shared memory. Compiled for 90a only,
// whatever the build is for.
#include "bantam/kernels/common/cuda/tensor_boxes.h"
#include "bantam/kernels/common/cuda/vectorized.cuh"
#include "bantam/kernels/pointwise/cuda/warpgroup_masked_gradient.cuh"
#include "bantam/kernels/pointwise/cuda/warpgroup_masked_gradient.h"

namespace bantam::kernels::cuda {
namespace {

template <class T, int kBuffers>
bool launch(const Exec& exec, const PointwiseShape& s, DType dtype, const void* dy, const void* w, const void* addend,
            const std::uint8_t* mask, void* dz, float* partials) {
  using Tile = MaskedTile<kBuffers>;
  constexpr int kSharedBytes = 227 << 10;
  const MaskedGradientTiles tiles(s);
  const int depths = static_cast<int>(s.out / Tile::kDepth), round = 2 * depths;  // loads of a tile for each warpgroup
  const int left = kSharedBytes - Tile::bytes_without_stages(depths);
  const int room = std::min(left / Tile::kStageBytes, Tile::kMostStages);
  const int stages = room < round ? room : room - room % round;
  const MaskedCut cut{.rows = s.rows,
                      .columns = static_cast<int>(s.in),
                      .depths = depths,
                      .tiles = static_cast<int>(tiles.tiles),
                      .column_blocks = static_cast<int>(tiles.column_blocks),
                      .stages = stages,
                      .in_turn = stages % round != 0,  // as in warpgroup_product.cu
                      .mask = mask,
                      .partials = partials};
  CUtensorMap dy_map, w_map, addend_map, dz_map;
  if (!TensorBoxes::of_matrix(dy, s.rows, s.out).describe(dtype, 2, dy_map) ||
      !TensorBoxes::of_matrix(w, s.out, s.in).describe(dtype, 2, w_map) ||
      !TensorBoxes::of_matrix(addend, s.rows, s.in).describe(dtype, 2, addend_map) ||
      !TensorBoxes::of_matrix(dz, s.rows, s.in).describe(dtype, 2, dz_map))
    return false;
  const int bytes = kSharedBytes - left + stages * Tile::kStageBytes;
  const auto blocks = static_cast<unsigned>(tiles.row_blocks * tiles.column_blocks);
  launch_early_with_shared(exec, warpgroup_masked_gradient_kernel<T, kBuffers>, blocks, Tile::kThreads, bytes, dy_map,
                           w_map, addend_map, dz_map, cut);
  return true;
}

/// Three tiles of each warpgroup where the weights leave room for them.
template <class T>
bool run(const Exec& exec, const PointwiseShape& s, DType dtype, const void* dy, const void* w, const void* addend,
         const std::uint8_t* mask, void* dz, float* partials) {
  return s.out <= 256 ? launch<T, 3>(exec, s, dtype, dy, w, addend, mask, dz, partials)
                      : launch<T, 1>(exec, s, dtype, dy, w, addend, mask, dz, partials);
}

}  // namespace

bool warpgroup_masked_gradient(const Exec& exec, const PointwiseShape& s, DType dtype, const void* dy, const void* w,
                               const void* addend, const std::uint8_t* mask, void* dz, float* partials) {
  if (!has_warpgroups(exec) || !packs_aligned<uint4, 1>(dy, w, addend, mask, dz)) return false;
  return dtype == DType::float16 ? run<__half>(exec, s, dtype, dy, w, addend, mask, dz, partials)
                                 : run<__nv_bfloat16>(exec, s, dtype, dy, w, addend, mask, dz, partials);
}

}  // namespace bantam::kernels::cuda
