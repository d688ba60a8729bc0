// expand_reduce: the wgmma kernel, or library GEMMs of chunks of rows with a pass over each chunk; then the sums of the
// parts.
#include "bantam/kernels/expand/cuda/expand_reduce.h"
#include "bantam/kernels/expand/cuda/warpgroup_expand.h"
#include "bantam/kernels/matmul/matmul.h"
#include "bantam/kernels/norm/cuda/batch_norm_gradient.cuh"
#include "bantam/kernels/norm/cuda/clamped_norm.cuh"

namespace bantam::kernels::cuda {
namespace {

template <int N>
struct ReduceKept {
  Affine<N> affine;
  float row[N], narrow_scale, scale;
};
template <class T, int N>
struct ReduceLoaded {
  Pack<float, N> narrow, wide;
  Pack<T, N> x;
};

/// Writes dz_before from the products of a chunk; terms of its sums.
template <class T>
struct ReduceTerms {
  const float *narrow, *wide;  ///< (rows, in): ã·stacked[:in], dz·stacked[in:]
  const T* x;
  AffineSource affine;
  ExpandReduceOperands operands;
  T* dz_before;

  template <int N>
  __device__ ReduceKept<N> start(std::int64_t c) const {
    ReduceKept<N> kept{affine.load<N>(c), {}, operands.scales[0], operands.scales[1]};
    load_floats(operands.row, c, 0.0f, kept.row);
    return kept;
  }
  template <int N>
  __device__ ReduceLoaded<T, N> load(std::int64_t at) const {
    return {load_pack<N>(narrow + at), load_pack<N>(wide + at), load_pack<N>(x + at)};
  }
  template <int N>
  __device__ void add(const ReduceKept<N>& kept, const ReduceLoaded<T, N>& loaded, std::int64_t at,
                      float (&sum)[2 * N]) const {
    Pack<T, N> rounded;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float v = to_float(loaded.x.v[n]);
      const float da = fmaf(fmaf(loaded.narrow.v[n], kept.narrow_scale, loaded.wide.v[n]), kept.scale, kept.row[n]);
      rounded.v[n] = from_float<T>(kept.affine.z(n, v) > 0.0f ? da : 0.0f);
      add_gradient_terms(to_float(rounded.v[n]), v - kept.affine.mean[n], sum[n], sum[N + n]);
    }
    *reinterpret_cast<Pack<T, N>*>(dz_before + at) = rounded;
  }
};

/// dz_before and the parts of its sums by library GEMMs; returns how many parts. Each part adds up its rows of one
/// chunk after the other.
template <class T>
unsigned reduce_by_chunks(const Exec& exec, const ExpandShape& s, DType dtype, const T* centred, const T* dz,
                          const ExpandReduceOperands& operands, const NormOperand& x, T* dz_before, float* partials,
                          float* narrow, float* wide, Workspace workspace) {
  const T *const stacked = static_cast<const T*>(operands.stacked), *const in = static_cast<const T*>(x.x);
  const std::int64_t chunk = expand_reduce_chunk_rows(s);
  unsigned parts = 0;
  for (std::int64_t row = 0; row < s.rows; row += chunk) {
    const std::int64_t rows = std::min(chunk, s.rows - row), at = row * s.in;
    matmul(exec, expand_reduce_product(s, rows, s.in), dtype, centred + at, stacked, {narrow}, workspace);
    matmul(exec, expand_reduce_product(s, rows, s.out), dtype, dz + row * s.out, stacked + s.in * s.in, {wide},
           workspace);
    const ReduceTerms<T> terms{narrow, wide, in + at, affine_of(x), operands, dz_before + at};
    with_pack<T, 4>(
        [&](auto n) {
          parts = std::max(
              parts, row_sum_parts<decltype(n)::value, 2>(exec, rows, s.in, partials, terms, /*earlier=*/row > 0));
        },
        s.in, in, dz_before);
  }
  return parts;
}

}  // namespace

void expand_reduce(const Exec& exec, const ExpandShape& shape, DType dtype, const void* centred, const void* dz,
                   const ExpandReduceOperands& operands, const NormOperand& x, const ExpandGradients& to,
                   Workspace workspace) {
  if (shape.rows <= 0) return;
  require_workspace(workspace, expand_reduce_workspace_bytes(shape, dtype), "expand_reduce");
  const ExpandReduceBytes bytes = ExpandReduceBytes::of(shape, dtype);
  WorkspaceCutter cutter(workspace);
  auto* const totals = cutter.cut<float>(bytes.totals);
  auto* const partials = cutter.cut<float>(bytes.partials);
  std::int64_t parts = 0;
  if (!warpgroup_expand_reduce(exec, shape, dtype, centred, dz, operands, x, to.dz_before, partials, parts)) {
    auto* const narrow = cutter.cut<float>(bytes.product);
    auto* const wide = cutter.cut<float>(bytes.product);
    const Workspace left{cutter.cut<std::byte>(bytes.matmul), bytes.matmul};
    const auto reduce = [&]<class T>(std::type_identity<T>) {
      return reduce_by_chunks(exec, shape, dtype, static_cast<const T*>(centred), static_cast<const T*>(dz), operands,
                              x, static_cast<T*>(to.dz_before), partials, narrow, wide, left);
    };
    parts =
        dtype == DType::float16 ? reduce(std::type_identity<__half>{}) : reduce(std::type_identity<__nv_bfloat16>{});
  }
  const FinishGradientSums finish{.inv_std = x.inv_std,
                                  .totals = to.totals != nullptr ? to.totals : totals,
                                  .dscale = to.dscale_before,
                                  .dshift = to.dshift_before,
                                  .channels = shape.in,
                                  .accumulate = to.accumulate_before};
  merge_parts<2>(exec, partials, static_cast<unsigned>(parts), shape.in, TotalSums<2, FinishGradientSums>{finish});
}

}  // namespace bantam::kernels::cuda
