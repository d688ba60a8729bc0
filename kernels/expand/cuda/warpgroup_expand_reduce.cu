// The launches of the wgmma kernel of expand_reduce: its tensor maps, and its shared memory. Compiled for 90a only.
#include "bantam/kernels/common/cuda/tensor_boxes.h"
#include "bantam/kernels/expand/cuda/warpgroup_expand.h"
#include "bantam/kernels/expand/cuda/warpgroup_expand_reduce.cuh"
#include "bantam/kernels/norm/cuda/clamped_norm.cuh"

namespace bantam::kernels::cuda {
namespace {

struct ReduceTensors {
  const void *centred, *dz;
  NormOperand x;
  void* dz_before;
};

template <class T, class Tile>
bool launch(const Exec& exec, const ExpandShape& s, DType dtype, const ReduceTensors& t,
            const ExpandReduceOperands& operands, float* partials, std::int64_t& parts) {
  constexpr int kSharedBytes = 227 << 10;
  const int depths = static_cast<int>((s.in + s.out) / 64), round = Tile::kTilesAtOnce * depths;
  const int room = std::min((kSharedBytes - Tile::bytes(depths, 0)) / Tile::kStageBytes, Tile::kMostStages);
  if (room < 2) return false;
  const int stages = !Tile::kResident || room < round ? room : room - room % round;
  const std::int64_t tiles = (s.rows + Tile::kRows - 1) / Tile::kRows;
  const std::int64_t column_blocks = (s.in + Tile::kColumns - 1) / Tile::kColumns;
  const std::int64_t row_blocks = std::min<std::int64_t>(kReferenceMultiprocessors / column_blocks,
                                                         (tiles + Tile::kTilesAtOnce - 1) / Tile::kTilesAtOnce);
  CUtensorMap narrow, wide, w, x, dz_before;
  if (!TensorBoxes::of_matrix(t.centred, s.rows, s.in, Tile::kRows).describe(dtype, 2, narrow) ||
      !TensorBoxes::of_matrix(t.dz, s.rows, s.out, Tile::kRows).describe(dtype, 2, wide) ||
      !TensorBoxes::of_matrix(operands.stacked, s.in + s.out, s.in).describe(dtype, 2, w) ||
      !TensorBoxes::of_matrix(t.x.x, s.rows, s.in).describe(dtype, 2, x) ||
      !TensorBoxes::of_matrix(t.dz_before, s.rows, s.in).describe(dtype, 2, dz_before))
    return false;
  const ReduceCut cut{.rows = s.rows,
                      .columns = static_cast<int>(s.in),
                      .narrow = static_cast<int>(s.in / 64),
                      .depths = depths,
                      .tiles = static_cast<int>(tiles),
                      .row_blocks = static_cast<int>(row_blocks),
                      .column_blocks = static_cast<int>(column_blocks),
                      .stages = stages,
                      // A barrier tells only odd rounds of the ring from even ones, so who waits for a stage must know
                      // that its copy of the round before has come: it waited for that itself, where it reads all
                      // stages or a round is a whole number of everybody's tiles, or waits in turn.
                      .in_turn = Tile::kResident && stages % round != 0,
                      .operands = operands,
                      .norm = affine_of(t.x),
                      .partials = partials};
  launch_early_with_shared(exec, expand_reduce_kernel<T, Tile>, dim3(static_cast<unsigned>(row_blocks * column_blocks)),
                           dim3(Tile::kThreads), static_cast<std::size_t>(Tile::bytes(depths, stages)), narrow, wide, w,
                           x, dz_before, cut);
  parts = 2 * row_blocks;
  return true;
}

template <class T>
bool run(const Exec& exec, const ExpandShape& s, DType dtype, const ReduceTensors& t,
         const ExpandReduceOperands& operands, float* partials, std::int64_t& parts) {
  if (s.in == 64 && launch<T, ReduceTile<64, true>>(exec, s, dtype, t, operands, partials, parts)) return true;
  if (s.in == 128 && launch<T, ReduceTile<128, true>>(exec, s, dtype, t, operands, partials, parts)) return true;
  return launch<T, ReduceTile<256, false>>(exec, s, dtype, t, operands, partials, parts);
}

}  // namespace

bool warpgroup_expand_reduce(const Exec& exec, const ExpandShape& s, DType dtype, const void* centred, const void* dz,
                             const ExpandReduceOperands& operands, const NormOperand& x, void* dz_before,
                             float* partials, std::int64_t& parts) {
  if (s.rows == 0 || s.in % 64 != 0 || s.out % 64 != 0 || !is_half(dtype) || !has_warpgroups(exec) ||
      !packs_aligned<uint4, 1>(centred, dz, operands.stacked, x.x, dz_before))
    return false;
  const ReduceTensors tensors{centred, dz, x, dz_before};
  return dtype == DType::float16 ? run<__half>(exec, s, dtype, tensors, operands, partials, parts)
                                 : run<__nv_bfloat16>(exec, s, dtype, tensors, operands, partials, parts);
}

}  // namespace bantam::kernels::cuda
