// Weight gradient of a 3x3 depthwise convolution on CUDA: nine sums a channel in registers, then over a block, then
// over parts, each in a fixed order.
#pragma once

#include "bantam/kernels/depthwise/cuda/depthwise_strips.cuh"

namespace bantam::kernels::cuda {

/// sums[3·kh + kw] += row[kStride·t + kw] · gradient[t], over the columns t.
template <int kStride, int kColumns, int kData, int N>
__device__ inline void add_products(const float (&row)[kData][N], const float (&gradient)[kColumns][N], int kh,
                                    float (&sums)[9 * N]) {
#pragma unroll
  for (int t = 0; t < kColumns; ++t) {
#pragma unroll
    for (int kw = 0; kw < 3; ++kw) {
#pragma unroll
      for (int n = 0; n < N; ++n) sums[(3 * kh + kw) * N + n] += row[t * kStride + kw][n] * gradient[t][n];
    }
  }
}

/// Adds a task's share to `sums`. Rows of dy stay in registers as long as rows of x under their taps pass.
template <class T, int N, int kStride, int kColumns>
__device__ inline void add_task(const T* x, const T* dy, const Strips& g, const StripTask& task, int c,
                                float (&sums)[9 * N]) {
  constexpr int kData = (kColumns - 1) * kStride + 3, kKept = kStride == 1 ? 3 : 2;
  const int first_column = task.first_column * kStride - g.pad_left;
  const unsigned inside = columns_inside<kData>(first_column, g.in_w),
                 dy_inside = columns_inside<kColumns>(task.first_column, g.out_w);
  const std::int64_t x_row = static_cast<std::int64_t>(g.in_w) * g.channels,
                     dy_row = static_cast<std::int64_t>(g.out_w) * g.channels;
  int row = task.first_row * kStride - g.pad_top, gradient_row = task.first_row;
  const T* from = x + (task.image * g.in_h + row) * x_row + static_cast<std::int64_t>(first_column) * g.channels + c;
  const T* gradient_from = dy + (task.image * g.out_h + gradient_row) * dy_row +
                           static_cast<std::int64_t>(task.first_column) * g.channels + c;

  RawRow<T, N, kData> next;
  RawRow<T, N, kColumns> next_gradient;
  float data[kData][N], gradient[kKept][kColumns][N] = {};
  const int end = min(g.in_h, (task.end_row - 1) * kStride - g.pad_top + 3);
  const auto fetch = [&] { next.load(from, row >= 0 && row < end ? inside : 0u, g.channels); };
  const auto fetch_gradient = [&] {
    next_gradient.load(gradient_from, gradient_row < task.end_row ? dy_inside : 0u, g.channels);
  };
  const auto advance = [&] {  // whether the row that came is one of the image's
    const bool exists = row >= 0 && row < end;
    next.floats(data);
    ++row;
    from += x_row;
    fetch();
    return exists;
  };
  const auto advance_gradient = [&](float(&to)[kColumns][N]) {
    next_gradient.floats(to);
    ++gradient_row;
    gradient_from += dy_row;
    fetch_gradient();
  };
  fetch();
  fetch_gradient();
  const int steps = task.end_row - task.first_row;
  if constexpr (kStride == 1) {
    // Step k: row k of x lies under tap row 0 of row k of dy, 1 of k - 1 and 2 of k - 2.
    for (int k0 = 0; k0 < steps + 2; k0 += 3) {
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        if (k0 + i >= steps + 2) break;
        advance_gradient(gradient[i]);
        if (!advance()) continue;
        add_products<1>(data, gradient[i], 0, sums);
        add_products<1>(data, gradient[(i + 2) % 3], 1, sums);
        add_products<1>(data, gradient[(i + 1) % 3], 2, sums);
      }
    }
  } else {
    for (int k0 = 0; k0 < steps + 1; k0 += 2) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int k = k0 + i;
        if (k > steps) break;
        advance_gradient(gradient[i]);
        if (advance()) {
          add_products<2>(data, gradient[i], 0, sums);
          add_products<2>(data, gradient[1 - i], 2, sums);
        }
        if (k == steps) break;
        if (advance()) add_products<2>(data, gradient[i], 1, sums);
      }
    }
  }
}

/// Adds sums[i] over the threads of a block with equal threadIdx.x, in a fixed order, and calls write(i, x, sum).
template <int kValues, class Write>
__device__ inline void sum_over_strips(const float (&sums)[kValues], Write&& write) {
  __shared__ float shared[kValues][kStripThreads];
  const int lanes = static_cast<int>(blockDim.x), threads = lanes * static_cast<int>(blockDim.y);
  const int thread = static_cast<int>(threadIdx.y) * lanes + static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < kValues; ++i) shared[i][thread] = sums[i];
  __syncthreads();
  for (int at = thread; at < kValues * lanes; at += threads) {
    const int i = at / lanes, x = at % lanes;
    float sum = 0;
    for (int strip = x; strip < threads; strip += lanes) sum += shared[i][strip];
    write(i, x, sum);
  }
}

/// Adds kSums sums of N channels a thread over a block of strips, and puts them into partials (parts, kSums, channels),
/// or with one part passes them to write(sum·channels + c, value). `block`: the part and the column of blocks.
template <int kSums, int N, class Write>
__device__ inline void put_strip_sums(const float (&sums)[kSums * N], const Divided& block, const StripGrid& grid,
                                      int channels, float* partials, const Write& write) {
  const bool only = gridDim.x == grid.columns;
  sum_over_strips(sums, [&](int i, int lane, float sum) {
    const int channel = static_cast<int>(block.remainder * blockDim.x + lane) * N + i % N;
    if (channel >= channels) return;
    const std::int64_t at = static_cast<std::int64_t>(i / N) * channels + channel;
    if (only)
      write(at, sum);
    else
      partials[static_cast<std::int64_t>(block.quotient) * kSums * channels + at] = sum;
  });
}

/// Sums of part blockIdx.x / columns: tasks [part·tasks_each, …), a block's threads in turn. To partials (parts, 9,
/// channels), or with one part to write(tap·channels + c, sum).
template <class T, int N, int kStride, int kColumns>
__global__ void __launch_bounds__(kStripThreads, kStride == 1 ? 3 : 4)
    depthwise_3x3_grad_weight_kernel(const T* x, const T* dy, Strips g, StripGrid grid, std::uint32_t tasks_each,
                                     float* partials, WriteSum write) {
  const Divided block = grid.by_columns.divide(blockIdx.x);
  const int c = static_cast<int>(block.remainder * blockDim.x + threadIdx.x) * N;
  float sums[9 * N] = {};
  if (c < g.channels) {
    const std::uint32_t begin = block.quotient * tasks_each, end = min(begin + tasks_each, g.tasks);
    for (std::uint32_t task = begin + threadIdx.y; task < end; task += blockDim.y)
      add_task<T, N, kStride, kColumns>(x, dy, g, g.task(task), c, sums);
  }
  put_strip_sums<9, N>(sums, block, grid, g.channels, partials, write);
}

inline constexpr int kAddPartsRows = 32;

/// write(i, Σ over parts of partials[part, i]): 32 neighbouring sums a block, 32 threads each add every 32nd part.
template <class Write>
__global__ void __launch_bounds__(32 * kAddPartsRows)
    add_strip_parts_kernel(const float* partials, int parts, std::int64_t count, Write write) {
  __shared__ float shared[kAddPartsRows][33];
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x;
  float sum = 0;
  if (i < count) {
#pragma unroll 8
    for (int part = static_cast<int>(threadIdx.y); part < parts; part += kAddPartsRows)
      sum += partials[part * count + i];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  // Warp w adds the 32 sums of column w: a butterfly, whose order is fixed.
  float total = shared[threadIdx.x][threadIdx.y];
  for (int apart = 16; apart > 0; apart /= 2) total += __shfl_down_sync(0xffffffffu, total, apart);
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.y;
  if (threadIdx.x == 0 && at < count) write(at, total);
}

template <class Write>
void add_strip_parts(const Exec& exec, const float* partials, std::int64_t parts, std::int64_t count,
                     const Write& write) {
  add_strip_parts_kernel<<<blocks_for(count, 32), dim3(32, kAddPartsRows), 0, stream_of(exec)>>>(
      partials, static_cast<int>(parts), count, write);
  check_launch("add_strip_parts_kernel");
}

}  // namespace bantam::kernels::cuda
