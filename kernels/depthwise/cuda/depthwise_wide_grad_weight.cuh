// Weight gradient of a 5x5 or 7x7 depthwise convolution on CUDA: a thread keeps all sums of one channel, then a block's
// and the parts' are added in a fixed order.
#pragma once

#include "bantam/kernels/depthwise/cuda/depthwise_3x3_grad_weight.cuh"

namespace bantam::kernels::cuda {

/// Adds a task's share to `sums`: the rows of dy that lie over a row of x stay in registers.
template <class T, int kKernel, int kStride>
__device__ inline void add_wide_task(const T* x, const T* dy, const Strips& g, const StripTask& task, int c,
                                     float (&sums)[kKernel * kKernel]) {
  constexpr int kColumns = kWideColumns, kOver = (kKernel + kStride - 1) / kStride;
  using Values = PlainValues<T, 1>;
  auto rows = rows_under<Values, kColumns, kStride, 0, T, 1, kKernel>(x, g, task, c);
  const std::int64_t dy_row = static_cast<std::int64_t>(g.out_w) * g.channels;
  StripRows<T, 1, kColumns, Values, kColumns, 0> gradients{
      .from = dy + (task.image * g.out_h + task.first_row) * dy_row +
              static_cast<std::int64_t>(task.first_column) * g.channels + c,
      .row = task.first_row,
      .end_row = task.end_row,
      .inside = columns_inside<kColumns>(task.first_column, g.out_w),
      .channels = g.channels,
      .step = dy_row,
      .here = 0,
      .next = {}};
  float data[(kColumns - 1) * kStride + kKernel][1], gradient[kOver][kColumns][1] = {};
  rows.fetch();
  gradients.fetch();
  const int steps = task.end_row - task.first_row;
  for (int k = 0; k < steps + kOver - 1; ++k) {
#pragma unroll
    for (int d = kOver - 1; d > 0; --d)
#pragma unroll
      for (int t = 0; t < kColumns; ++t) gradient[d][t][0] = gradient[d - 1][t][0];
    gradients.load(Values{}, gradient[0]);
#pragma unroll
    for (int phase = 0; phase < kStride; ++phase) {
      if (!rows.exists()) {
        rows.skip();
        continue;
      }
      rows.load(Values{}, data);
#pragma unroll
      for (int kh = phase; kh < kKernel; kh += kStride)
#pragma unroll
        for (int kw = 0; kw < kKernel; ++kw)
#pragma unroll
          for (int t = 0; t < kColumns; ++t)
            sums[kh * kKernel + kw] += data[t * kStride + kw][0] * gradient[kh / kStride][t][0];
    }
  }
}

/// As depthwise_3x3_grad_weight_kernel, one channel a thread.
template <class T, int kKernel, int kStride>
__global__ void __launch_bounds__(kStripThreads, kKernel == 5 ? 4 : 3)
    depthwise_wide_grad_weight_kernel(const T* x, const T* dy, Strips g, StripGrid grid, std::uint32_t tasks_each,
                                      float* partials, WriteSum write) {
  const Divided block = grid.by_columns.divide(blockIdx.x);
  const int c = static_cast<int>(block.remainder * blockDim.x + threadIdx.x);
  float sums[kKernel * kKernel] = {};
  if (c < g.channels) {
    const std::uint32_t begin = block.quotient * tasks_each, end = min(begin + tasks_each, g.tasks);
    for (std::uint32_t task = begin + threadIdx.y; task < end; task += blockDim.y)
      add_wide_task<T, kKernel, kStride>(x, dy, g, g.task(task), c, sums);
  }
  put_strip_sums<kKernel * kKernel, 1>(sums, block, grid, g.channels, partials, write);
}

}  // namespace bantam::kernels::cuda
