// The launches of the wgmma kernels of the algebra: one for the statistics, two for the gradients. Compiled for 90a
// only.
#include "bantam/kernels/common/cuda/cluster_launch.cuh"
#include "bantam/kernels/common/cuda/tensor_boxes.h"
#include "bantam/kernels/expand/cuda/warpgroup_expand.h"
#include "bantam/kernels/expand/cuda/warpgroup_expand_algebra.cuh"

namespace bantam::kernels::cuda {
namespace {

bool supports(const Exec& exec, const ExpandShape& s, DType dtype) {
  return s.rows > 0 && (s.in == 64 || s.in == 128 || s.in == 256 || s.in == 512) && s.out > 0 && s.out % 128 == 0 &&
         is_half(dtype) && has_warpgroups(exec);
}

/// call(T{}, std::integral_constant<int, in>{}).
template <class Call>
bool with_width(const ExpandShape& s, DType dtype, const Call& call) {
  const auto of_type = [&](auto type) {
    if (s.in == 64) return call(type, std::integral_constant<int, 64>{});
    if (s.in == 128) return call(type, std::integral_constant<int, 128>{});
    if (s.in == 256) return call(type, std::integral_constant<int, 256>{});
    return call(type, std::integral_constant<int, 512>{});
  };
  return dtype == DType::float16 ? of_type(__half{}) : of_type(__nv_bfloat16{});
}

}  // namespace

bool warpgroup_expand_statistics(const Exec& exec, const ExpandShape& s, DType dtype, const void* w,
                                 const ExpandMoments& moments, const BatchNormAffine& before,
                                 const StatisticsOutput& statistics, float* products) {
  CUtensorMap w_map;
  if (!supports(exec, s, dtype) || !packs_aligned<uint4, 1>(w, moments.covariance) ||
      !packs_aligned<float2, 1>(products) || !TensorBoxes::of_matrix(w, s.out, s.in).describe(dtype, 2, w_map))
    return false;
  return with_width(s, dtype, [&](auto type, auto in) {
    using Tile = StatisticsTile<decltype(type), decltype(in)::value>;
    const ClusterLaunch launch(exec, expand_statistics_kernel<decltype(type), decltype(in)::value>, Tile::kCluster,
                               s.out / Tile::kRows * Tile::kCluster, Tile::kThreads, Tile::kBytes);
    if (!launch.fits()) return false;
    launch.start(w_map, StatisticsCut{.rows = static_cast<double>(s.rows),
                                      .moments = moments,
                                      .scale = before.scale,
                                      .shift = before.shift,
                                      .products = products,
                                      .finish = FinishStatistics::of(statistics)});
    return true;
  });
}

bool warpgroup_expand_gradients(const Exec& exec, const ExpandShape& s, DType dtype, const ExpandInputs& in,
                                const ExpandGradients& to, const ExpandBackwardArrays& arrays) {
  CUtensorMap w_map;
  if (!supports(exec, s, dtype) || !packs_aligned<uint4, 1>(in.w) ||
      !packs_aligned<float2, 1>(in.moments.mean, in.products, to.dw) ||
      !TensorBoxes::of_matrix(in.w, s.out, s.in).describe(dtype, 2, w_map))
    return false;
  return with_width(s, dtype, [&](auto type, auto width) {
    constexpr int kIn = decltype(width)::value;
    using T = decltype(type);
    using Rows = GradientRows<kIn>;
    using Tile = SlopeTile<T, kIn>;
    const auto out = static_cast<int>(s.out), blocks = out / Rows::kRows;
    const ClusterLaunch slope(exec, expand_slope_kernel<T, kIn>, Tile::kCluster, Tile::kBlocks, Tile::kThreads,
                              Tile::bytes(out));
    if (!slope.fits()) return false;
    const GradientsCut cut{.out = out,
                           .blocks = blocks,
                           .rows = static_cast<float>(s.rows),
                           .w = in.w,
                           .scale = in.product.affine.scale,
                           .inv_std = in.product.inv_std,
                           .mean = in.moments.mean,
                           .products = in.products,
                           .p = arrays.p,
                           .dz_sums = in.dz_sums,
                           .dw = to.dw,
                           .dscale = to.dscale,
                           .dshift = to.dshift,
                           .accumulate_w = to.accumulate_w,
                           .accumulate_after = to.accumulate_after,
                           .slopes = arrays.vectors,
                           .widest = arrays.vectors + s.out,
                           .weight_rows = arrays.weights,
                           .stacked = arrays.stacked,
                           .scales = arrays.scales,
                           .row_parts = arrays.slope,
                           .row = arrays.row,
                           .counter = Libraries::of(exec).block_counters(exec.stream)};
    launch_early(exec, expand_gradients_kernel<T, kIn>, static_cast<unsigned>(blocks), Rows::kThreads, cut);
    slope.start(w_map, cut);
    return true;
  });
}

}  // namespace bantam::kernels::cuda
