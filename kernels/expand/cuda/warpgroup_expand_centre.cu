// The launches of the wgmma kernel of expand_centre: its tensor maps and its shared memory. Compiled for 90a only.
#include "bantam/kernels/common/cuda/cluster_launch.cuh"
#include "bantam/kernels/common/cuda/tensor_boxes.h"
#include "bantam/kernels/expand/cuda/warpgroup_expand.h"
#include "bantam/kernels/expand/cuda/warpgroup_expand_centre.cuh"
#include "bantam/kernels/norm/cuda/clamped_norm.cuh"

namespace bantam::kernels::cuda {
namespace {

template <class T, int kIn>
bool launch(const Exec& exec, const ExpandShape& s, DType dtype, const NormOperand& x, void* centred,
            const ExpandMoments& moments, Workspace workspace) {
  using Tile = CentreTile<kIn>;
  CUtensorMap x_map, centred_map;
  const ClusterLaunch merge(exec, merge_moments_kernel<kIn>, kMomentCluster, kIn, kMomentThreads);
  if (!TensorBoxes::of_matrix(x.x, s.rows, s.in).describe(dtype, 2, x_map) ||
      !TensorBoxes::of_matrix(centred, s.rows, s.in).describe(dtype, 2, centred_map) || !merge.fits())
    return false;
  const ExpandCentreScratch scratch(s);
  WorkspaceCutter cutter(workspace);
  float* const gram = cutter.cut<float>(scratch.gram);
  float* const sums = cutter.cut<float>(scratch.sums);
  const auto blocks = static_cast<unsigned>(expand_centre_blocks(s));
  launch_early_with_shared(exec, expand_centre_kernel<T, kIn>, blocks, Tile::kThreads, Tile::kBytes, x_map, centred_map,
                           CentreCut{.rows = s.rows,
                                     .tiles = static_cast<int>((s.rows + Tile::kRows - 1) / Tile::kRows),
                                     .rule = {affine_of(x)},
                                     .gram = gram,
                                     .sums = sums});
  merge.start(gram, sums, static_cast<int>(blocks), static_cast<float>(s.rows), moments);
  return true;
}

template <class T>
bool run(const Exec& exec, const ExpandShape& s, DType dtype, const NormOperand& x, void* centred,
         const ExpandMoments& moments, Workspace workspace) {
  return s.in == 64 ? launch<T, 64>(exec, s, dtype, x, centred, moments, workspace)
                    : launch<T, 128>(exec, s, dtype, x, centred, moments, workspace);
}

}  // namespace

bool warpgroup_expand_centre(const Exec& exec, const ExpandShape& s, DType dtype, const NormOperand& x, void* centred,
                             const ExpandMoments& moments, Workspace workspace) {
  if (s.rows <= 0 || expand_centre_warpgroups(s.in) == 0 || moments.mean == nullptr || !is_half(dtype) ||
      !has_warpgroups(exec) || !packs_aligned<uint4, 1>(x.x, centred))
    return false;
  return dtype == DType::float16 ? run<__half>(exec, s, dtype, x, centred, moments, workspace)
                                 : run<__nv_bfloat16>(exec, s, dtype, x, centred, moments, workspace);
}

}  // namespace bantam::kernels::cuda
