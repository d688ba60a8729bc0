// 3x3 depthwise convolution on CUDA that normalises and clamps its input as it reads, and computes the moments of its
// output.
#pragma once

#include "bantam/kernels/depthwise/cuda/depthwise_3x3.cuh"
#include "bantam/kernels/depthwise/norm_depthwise_parts.h"
#include "bantam/kernels/norm/cuda/clamped_norm.cuh"

namespace bantam::kernels::cuda {

/// Raw values normalised, clamped and rounded as if they had been written; zero in the padding.
template <class T, int N>
struct NormedValues {
  Affine<N> norm;
  Clamp f;

  template <int kData>
  __device__ void floats(const RawRow<T, N, kData>& row, unsigned inside, float (&values)[kData][N]) const {
#pragma unroll
    for (int i = 0; i < kData; ++i) {
      row.at[i].floats(values[i]);
#pragma unroll
      for (int n = 0; n < N; ++n) values[i][n] = norm.z(n, values[i][n]);
      f.round_and_clamp<T>(values[i], (inside >> i & 1u) != 0);
    }
  }
};

/// y and its moments, part by part (StripParts).
template <class T, int N, int kStride, int kColumns>
__global__ void __launch_bounds__(kStripThreads, 3)
    norm_depthwise_forward_kernel(const T* x, AffineSource norm, Clamp f, const T* weights, T* y, Strips g,
                                  StripGrid grid, std::uint32_t tasks_each, PartMoments parts) {
  const Divided block = grid.by_columns.divide(blockIdx.x);
  const int first_channel = static_cast<int>(block.remainder * blockDim.x) * N;
  const int c = first_channel + static_cast<int>(threadIdx.x) * N;
  StripMoments<N> moments;
  if (c < g.channels) {
    float taps[9][N];
    load_taps<T, N>(weights, g.channels, c, false, taps);
    using Values = NormedValues<T, N>;
    constexpr int kAhead = sizeof(T) == 2 ? kStride - 1 : 0;  // at stride 1 it costs more than it brings
    const Values values{norm.load<N>(c), f};
    const std::uint32_t begin = block.quotient * tasks_each, end = min(begin + tasks_each, g.tasks);
    for (std::uint32_t index = begin + threadIdx.y; index < end; index += blockDim.y) {
      const StripTask task = g.task(index);
      auto rows = rows_under<Values, kColumns, kStride, kAhead, T, N>(x, g, task, c);
      StripWriter<T> out(y, g, task, c);
      convolve_strip<kStride, kColumns>(rows, values, taps, task.end_row - task.first_row,
                                        [&](const float(&sums)[kColumns][N]) {
                                          moments.template add_row<T>(sums, out.columns_left);
                                          out.write(sums);
                                        });
    }
  }
  write_part_moments(moments, first_channel, static_cast<int>(block.quotient), parts);
}

}  // namespace bantam::kernels::cuda
