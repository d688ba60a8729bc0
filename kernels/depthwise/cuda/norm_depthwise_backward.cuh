// Backward of norm, clamp, 3x3 depthwise convolution, norm, clamp on CUDA in one pass: the second norm's gradient is
// made as it is read, and the gradients of the input, of the weights and the first norm's two sums come of the same
// values.
#pragma once

#include "bantam/kernels/depthwise/cuda/depthwise_3x3.cuh"
#include "bantam/kernels/depthwise/cuda/depthwise_3x3_grad_weight.cuh"
#include "bantam/kernels/depthwise/norm_depthwise_parts.h"
#include "bantam/kernels/norm/cuda/clamped_norm.cuh"

namespace bantam::kernels::cuda {

/// The gradient of a norm's input from the gradient of its clamp's output: factor·dz + slope·(v - mean) + constant,
/// with the norm's own sums known.
template <int N>
struct NormGradient {
  Affine<N> norm;
  float slope[N], constant[N];
  Clamp f;

  /// `totals` (2, channels): Σ dz, Σ dz·x̂.
  __device__ NormGradient(const AffineSource& source, Clamp clamp, const float* totals, int channels, float per_row,
                          int c)
      : norm(source.load<N>(c)), f(clamp) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      constant[n] = -per_row * norm.factor[n] * totals[c + n];
      slope[n] = -per_row * norm.factor[n] * source.spread[c + n] * totals[channels + c + n];
    }
  }
  __device__ float operator()(int n, float v, float dy) const {
    const float from_mean = v - norm.mean[n], z = fmaf(from_mean, norm.factor[n], norm.shift[n]);
    return fmaf(norm.factor[n], f.rises(z) ? dy : 0.0f, fmaf(slope[n], from_mean, constant[n]));
  }
};

/// The operands of the pass: `y` is the convolution's result, `dy` the gradient of the output of the norm and
/// clamp after it; `dx` receives dz, the gradient of the output of the norm before it, before its clamp.
template <class T>
struct BackwardOperands {
  const T* x;
  const T* y;
  const T* dy;
  const T* weights;
  T* dx;
  AffineSource before, after;
  Clamp before_clamp, after_clamp;
  const float* after_totals;
  float per_row;  ///< 1 / rows of y
};

/// Rows of the convolution's gradient, one after another from the top, the next on its way.
template <class T, int N, int kData>
struct GradientRows {
  const T* y;
  const T* dy;
  int row, end_row;
  unsigned inside;
  int channels;
  std::int64_t step;
  unsigned here;
  RawRow<T, N, kData> next_y, next_dy;

  __device__ void fetch() {
    here = row >= 0 && row < end_row ? inside : 0u;
    next_y.load(y, here, channels);
    next_dy.load(dy, here, channels);
  }
  __device__ void load(const NormGradient<N>& of, float (&values)[kData][N]) {
#pragma unroll
    for (int i = 0; i < kData; ++i) {
      float v[N];
      next_y.at[i].floats(v);
      next_dy.at[i].floats(values[i]);
#pragma unroll
      for (int n = 0; n < N; ++n) values[i][n] = of(n, v[n], values[i][n]);
    }
    clear_outside(here, values);
    ++row;
    y += step;
    dy += step;
    fetch();
  }
};

/// Gradient rows from `row` on, columns from `column` on.
template <int kData, class T, int N>
__device__ inline GradientRows<T, N, kData> gradient_rows(const BackwardOperands<T>& o, const Strips& g,
                                                          const StripTask& task, int row, int column, int end_row,
                                                          int c) {
  const std::int64_t step = static_cast<std::int64_t>(g.out_w) * g.channels;
  const std::int64_t at = (task.image * g.out_h + row) * step + static_cast<std::int64_t>(column) * g.channels + c;
  return {.y = o.y + at,
          .dy = o.dy + at,
          .row = row,
          .end_row = min(g.out_h, end_row),
          .inside = columns_inside<kData>(column, g.out_w),
          .channels = g.channels,
          .step = step,
          .here = 0,
          .next_y = {},
          .next_dy = {}};
}

/// A thread's side of x: reads its rows, computes the convolution's input, and writes dz.
template <class T, int N, int kColumns>
struct InputRows {
  const T* x;
  T* dx;
  int row, end_row;
  unsigned inside;
  int channels;
  std::int64_t step;
  RawRow<T, N, kColumns> next;
  float raw[kColumns][N], seen[kColumns][N];

  __device__ InputRows(const BackwardOperands<T>& o, const Strips& g, const StripTask& task, int first_row, int column,
                       int rows_end, int c)
      : row(first_row),
        end_row(min(g.in_h, rows_end)),
        inside(columns_inside<kColumns>(column, g.in_w)),
        channels(g.channels),
        step(static_cast<std::int64_t>(g.in_w) * g.channels) {
    const std::int64_t at = (task.image * g.in_h + row) * step + static_cast<std::int64_t>(column) * channels + c;
    x = o.x + at;
    dx = o.dx + at;
    fetch();
  }
  __device__ bool exists() const { return row >= 0 && row < end_row; }
  __device__ void fetch() { next.load(x, exists() ? inside : 0u, channels); }
  /// Computes `raw` and `seen` from the row that has arrived, and starts loading the next; false where the image has no
  /// such row.
  __device__ bool load(const Affine<N>& norm, Clamp f) {
    const bool here = exists();
    next.floats(raw);
#pragma unroll
    for (int t = 0; t < kColumns; ++t) {
#pragma unroll
      for (int n = 0; n < N; ++n) seen[t][n] = norm.z(n, raw[t][n]);
      f.round_and_clamp<T>(seen[t], (inside >> t & 1u) != 0);
    }
    ++row;
    x += step;
    fetch();
    return here;
  }
  /// Writes dz of the loaded row, and adds its terms to the norm's two sums.
  __device__ void write(float (&gradient)[kColumns][N], const Affine<N>& norm, Clamp f,
                        float (&sums)[kBackwardSums * N]) {
    clear_outside(inside, gradient);
#pragma unroll
    for (int t = 0; t < kColumns; ++t) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const float dz = f.rises(norm.z(n, raw[t][n])) ? gradient[t][n] : 0.0f;
        sums[9 * N + n] += dz;
        sums[10 * N + n] = fmaf(dz, raw[t][n] - norm.mean[n], sums[10 * N + n]);
        gradient[t][n] = dz;
      }
      if (inside >> t & 1u) repack<N>(gradient[t], dx + t * channels);
    }
  }
  __device__ void next_row() { dx += step; }
};

/// One tap's share: of the input's gradient, and of the weight's.
template <int N>
__device__ inline void add_tap(int tap, const float (&gradient)[N], const float (&seen)[N], const float (&taps)[9][N],
                               float (&out)[N], float (&sums)[kBackwardSums * N]) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
    out[n] = fmaf(gradient[n], taps[tap][n], out[n]);
    sums[tap * N + n] = fmaf(gradient[n], seen[n], sums[tap * N + n]);
  }
}

/// Stride 1: position p reads gradient rows p + pad - kh; three rows of the gradient are kept.
template <class T, int N, int kColumns>
__device__ inline void backward_stride_1(const BackwardOperands<T>& o, const Strips& g, const StripTask& task, int c,
                                         const Affine<N>& norm, const NormGradient<N>& of, const float (&taps)[9][N],
                                         float (&sums)[kBackwardSums * N]) {
  constexpr int kData = kColumns + 2;
  auto gradients = gradient_rows<kData, T, N>(o, g, task, task.first_row + g.pad_top - 2,
                                              task.first_column + g.pad_left - 2, task.end_row + g.pad_top, c);
  InputRows<T, N, kColumns> in(o, g, task, task.first_row, task.first_column, task.end_row, c);
  float gradient[3][kData][N];
  gradients.fetch();
  gradients.load(of, gradient[0]);
  gradients.load(of, gradient[1]);
  const int steps = task.end_row - task.first_row;
  for (int k0 = 0; k0 < steps; k0 += 3) {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      if (k0 + i >= steps) break;
      gradients.load(of, gradient[(i + 2) % 3]);
      in.load(norm, o.before_clamp);
      float out[kColumns][N];
      set_zero(out);
#pragma unroll
      for (int kh = 0; kh < 3; ++kh)
#pragma unroll
        for (int kw = 0; kw < 3; ++kw)
#pragma unroll
          for (int t = 0; t < kColumns; ++t)
            add_tap<N>(3 * kh + kw, gradient[(i + 2 - kh + 3) % 3][t + 2 - kw], in.seen[t], taps, out[t], sums);
      in.write(out, norm, o.before_clamp, sums);
      in.next_row();
    }
  }
}

/// Stride 2, in the coordinates of depthwise_3x3_spread_kernel: two rows of x a row of the gradient, two of which are
/// kept.
template <class T, int N, int kColumns>
__device__ inline void backward_stride_2(const BackwardOperands<T>& o, const Strips& g, const StripTask& task, int c,
                                         const Affine<N>& norm, const NormGradient<N>& of, const float (&taps)[9][N],
                                         float (&sums)[kBackwardSums * N]) {
  constexpr int kData = kColumns + 1, kPositions = 2 * kColumns;
  auto gradients = gradient_rows<kData, T, N>(o, g, task, task.first_row - 1, task.first_column - 1, task.end_row, c);
  InputRows<T, N, kPositions> in(o, g, task, 2 * task.first_row - g.pad_top, 2 * task.first_column - g.pad_left,
                                 2 * task.end_row - g.pad_top, c);
  float gradient[2][kData][N];
  gradients.fetch();
  gradients.load(of, gradient[1]);
  const int steps = task.end_row - task.first_row;
  for (int k0 = 0; k0 < steps; k0 += 2) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (k0 + i >= steps) break;
      gradients.load(of, gradient[i]);
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        if (in.load(norm, o.before_clamp)) {
          float out[kPositions][N];
          set_zero(out);
#pragma unroll
          for (int kh = odd; kh < 3; kh += 2)
#pragma unroll
            for (int t = 0; t < kPositions; ++t)
#pragma unroll
              for (int kw = t % 2; kw < 3; kw += 2)
                add_tap<N>(3 * kh + kw, gradient[kh == 2 ? 1 - i : i][t / 2 + (kw == 2 ? 0 : 1)], in.seen[t], taps,
                           out[t], sums);
          in.write(out, norm, o.before_clamp, sums);
        }
        in.next_row();
      }
    }
  }
}

/// dx gets dz; the eleven sums go to partials (parts, 11, channels), or with one part to write(sum·channels + c,
/// value).
template <class T, int N, int kStride, int kColumns, class Write>
__global__ void __launch_bounds__(kStripThreads, 3)
    norm_depthwise_backward_kernel(BackwardOperands<T> o, Strips g, StripGrid grid, std::uint32_t tasks_each,
                                   float* partials, Write write) {
  const Divided block = grid.by_columns.divide(blockIdx.x);
  const int c = static_cast<int>(block.remainder * blockDim.x + threadIdx.x) * N;
  float sums[kBackwardSums * N] = {};
  if (c < g.channels) {
    float taps[9][N];
    load_taps<T, N>(o.weights, g.channels, c, false, taps);
    const Affine<N> norm = o.before.load<N>(c);
    const NormGradient<N> of(o.after, o.after_clamp, o.after_totals, g.channels, o.per_row, c);
    const std::uint32_t begin = block.quotient * tasks_each, end = min(begin + tasks_each, g.tasks);
    for (std::uint32_t task = begin + threadIdx.y; task < end; task += blockDim.y) {
      if constexpr (kStride == 1)
        backward_stride_1<T, N, kColumns>(o, g, g.task(task), c, norm, of, taps, sums);
      else
        backward_stride_2<T, N, kColumns>(o, g, g.task(task), c, norm, of, taps, sums);
    }
  }
  put_strip_sums<kBackwardSums, N>(sums, block, grid, g.channels, partials, write);
}

}  // namespace bantam::kernels::cuda
