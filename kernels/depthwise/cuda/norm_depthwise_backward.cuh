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

/// Address of a column: one multiply-add of 64 bits.
template <class T>
__device__ inline T* at_column(T* first, int column, int channels) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  const int bytes = channels * static_cast<int>(sizeof(T));
  return reinterpret_cast<T*>(reinterpret_cast<Byte*>(first) + static_cast<std::int64_t>(column) * bytes);
}

/// A strip's rows of the convolution's gradient, one after another from the top, the next on its way. In place of a
/// position outside the image its neighbour is read, and the gradient is zero. kWhole: has_whole_strips.
template <class T, int N, int kData, bool kWhole>
struct GradientRows {
  const T* y;
  const T* dy;
  int row, end_row;
  std::int64_t step;
  unsigned inside;
  int channels, column[kData];  ///< from the strip's first on
  RawPack<T, N> next_y[kData], next_dy[kData];

  /// Rows from `first_row` to before `rows_end`, columns from `first_column` on.
  __device__ GradientRows(const BackwardOperands<T>& o, const Strips& g, std::int64_t image, int first_row,
                          int first_column, int rows_end, int c)
      : row(first_row),
        end_row(min(g.out_h, rows_end)),
        step(static_cast<std::int64_t>(g.out_w) * g.channels),
        inside(columns_inside<kData>(first_column, g.out_w)),
        channels(g.channels) {
    const std::int64_t from = (image * g.out_h + max(0, min(row, g.out_h - 1))) * step +
                              static_cast<std::int64_t>(first_column) * channels + c;
    y = o.y + from;
    dy = o.dy + from;
#pragma unroll
    for (int i = 0; i < kData; ++i) {
      column[i] = kWhole && !edge(i) ? i : max(0, min(first_column + i, g.out_w - 1)) - first_column;
      fetch(i);
    }
  }
  __device__ void load(const NormGradient<N>& of, float (&values)[kData][N]) {
    const unsigned here = row >= 0 && row < end_row ? inside : 0u;
    ++row;
    if (here == 0) return set_zero(values);
    const std::int64_t on = row < end_row ? step : 0;
    y += on;
    dy += on;
#pragma unroll
    for (int i = 0; i < kData; ++i) {
      float v[N];
      next_y[i].floats(v);
      next_dy[i].floats(values[i]);
      fetch(i);
#pragma unroll
      for (int n = 0; n < N; ++n) {
        values[i][n] = of(n, v[n], values[i][n]);
        if ((!kWhole || edge(i)) && (inside >> i & 1u) == 0) values[i][n] = 0;
      }
    }
  }

 private:
  __device__ static constexpr bool edge(int i) { return i == 0 || i == kData - 1; }
  __device__ void fetch(int i) {
    next_y[i].load(at_column(y, column[i], channels));
    next_dy[i].load(at_column(dy, column[i], channels));
  }
};

/// A strip's rows of x, one after another from the top, the next on its way; dz is written as they are read.
template <class T, int N, int kColumns, bool kWhole>
struct InputRows {
  const T* x;
  T* dx;
  int row, end_row;
  unsigned inside;
  int channels;
  std::int64_t step;
  RawPack<T, N> next[kColumns];

  __device__ InputRows(const BackwardOperands<T>& o, const Strips& g, std::int64_t image, int first_row, int column,
                       int rows_end, int c)
      : row(first_row),
        end_row(min(g.in_h, rows_end)),
        inside(columns_inside<kColumns>(column, g.in_w)),
        channels(g.channels),
        step(static_cast<std::int64_t>(g.in_w) * g.channels) {
    const std::int64_t from = (image * g.in_h + max(0, row)) * step + static_cast<std::int64_t>(column) * channels + c;
    x = o.x + from;
    dx = o.dx + from;
#pragma unroll
    for (int t = 0; t < kColumns; ++t) {
      next[t].clear();
      if (wanted(t)) next[t].load(at_column(x, t, channels));
    }
  }
  /// A row, where the image has it, column by column: add_taps(t, seen, gradient) adds up the gradient of what the
  /// convolution saw there; dz is written and its terms added to the norm's two sums.
  template <class AddTaps>
  __device__ void pass_row(const Affine<N>& norm, Clamp f, float (&sums)[kBackwardSums * N], AddTaps&& add_taps) {
    const bool here = row >= 0 && row < end_row;
    ++row;
    if (!here) return;
    if (row < end_row) x += step;
#pragma unroll
    for (int t = 0; t < kColumns; ++t) {
      float from_mean[N], seen[N], dz[N] = {};
      bool rises[N];
      next[t].floats(from_mean);
      if (wanted(t)) next[t].load(at_column(x, t, channels));
#pragma unroll
      for (int n = 0; n < N; ++n) {
        seen[n] = norm.z(n, from_mean[n]);
        rises[n] = wanted(t) && f.rises(seen[n]);
        from_mean[n] -= norm.mean[n];
      }
      f.round_and_clamp<T>(seen, wanted(t));
      add_taps(t, seen, dz);
#pragma unroll
      for (int n = 0; n < N; ++n) {
        if (!rises[n]) dz[n] = 0;
        sums[9 * N + n] += dz[n];
        sums[10 * N + n] = fmaf(dz[n], from_mean[n], sums[10 * N + n]);
      }
      if (wanted(t)) repack<N>(dz, at_column(dx, t, channels));
    }
    dx += step;
  }

 private:
  __device__ bool wanted(int t) const { return kWhole || (inside >> t & 1u) != 0; }
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
template <class T, int N, int kColumns, bool kWhole>
__device__ inline void backward_stride_1(const BackwardOperands<T>& o, const Strips& g, const StripTask& task, int c,
                                         const Affine<N>& norm, const NormGradient<N>& of, const float (&taps)[9][N],
                                         float (&sums)[kBackwardSums * N]) {
  constexpr int kData = kColumns + 2;
  GradientRows<T, N, kData, kWhole> gradients(o, g, task.image, task.first_row + g.pad_top - 2,
                                              task.first_column + g.pad_left - 2, task.end_row + g.pad_top, c);
  InputRows<T, N, kColumns, kWhole> in(o, g, task.image, task.first_row, task.first_column, task.end_row, c);
  float gradient[3][kData][N];
  gradients.load(of, gradient[0]);
  gradients.load(of, gradient[1]);
  const int steps = task.end_row - task.first_row;
  for (int k0 = 0; k0 < steps; k0 += 3) {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      if (k0 + i >= steps) break;
      gradients.load(of, gradient[(i + 2) % 3]);
      in.pass_row(norm, o.before_clamp, sums, [&](int t, const float(&seen)[N], float(&out)[N]) {
#pragma unroll
        for (int kh = 0; kh < 3; ++kh)
#pragma unroll
          for (int kw = 0; kw < 3; ++kw)
            add_tap<N>(3 * kh + kw, gradient[(i + 2 - kh + 3) % 3][t + 2 - kw], seen, taps, out, sums);
      });
    }
  }
}

/// Stride 2: a task walks over squares of four positions, whose first is at odd coordinates u = row + pad_top,
/// v = column + pad_left: position (r, t) of a strip reads gradient rows (r + 1 - kh) / 2 and columns (t + 1 - kw) / 2
/// from the square's own on, where they are whole.
template <class T, int N, int kColumns, bool kWhole>
__device__ inline void backward_stride_2(const BackwardOperands<T>& o, const Strips& g, const StripTask& task, int c,
                                         const Affine<N>& norm, const NormGradient<N>& of, const float (&taps)[9][N],
                                         float (&sums)[kBackwardSums * N]) {
  constexpr int kData = kColumns + 1;
  const int first_u = 2 * task.first_row - outside_squares(g.pad_top) + g.pad_top,
            first_v = 2 * task.first_column - outside_squares(g.pad_left) + g.pad_left;
  GradientRows<T, N, kData, kWhole> gradients(o, g, task.image, (first_u - 1) / 2, (first_v - 1) / 2,
                                              (first_u + 1) / 2 + task.end_row - task.first_row, c);
  InputRows<T, N, 2 * kColumns, kWhole> in(o, g, task.image, first_u - g.pad_top, first_v - g.pad_left,
                                           first_u - g.pad_top + 2 * (task.end_row - task.first_row), c);
  float gradient[2][kData][N];
  gradients.load(of, gradient[0]);
  for (int row = task.first_row; row < task.end_row; ++row) {
    gradients.load(of, gradient[1]);
#pragma unroll
    for (int r = 0; r < 2; ++r)
      in.pass_row(norm, o.before_clamp, sums, [&](int t, const float(&seen)[N], float(&out)[N]) {
#pragma unroll
        for (int kh = 1 - r; kh < 3; kh += 2)
#pragma unroll
          for (int kw = 1 - t % 2; kw < 3; kw += 2)
            add_tap<N>(3 * kh + kw, gradient[(r + 1 - kh) / 2][(t + 1 - kw) / 2], seen, taps, out, sums);
      });
#pragma unroll
    for (int i = 0; i < kData; ++i)
#pragma unroll
      for (int n = 0; n < N; ++n) gradient[0][i][n] = gradient[1][i][n];
  }
}

/// dx gets dz; the eleven sums go to partials (parts, 11, channels), or with one part to write(sum·channels + c,
/// value).
template <class T, int N, int kStride, int kColumns, bool kWhole, class Write>
__global__ void __launch_bounds__(kStripThreads, backward_blocks(kStride))
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
        backward_stride_1<T, N, kColumns, kWhole>(o, g, g.task(task), c, norm, of, taps, sums);
      else
        backward_stride_2<T, N, kColumns, kWhole>(o, g, g.task(task), c, norm, of, taps, sums);
    }
  }
  put_strip_sums<kBackwardSums, N>(sums, block, grid, g.channels, partials, write);
}

}  // namespace bantam::kernels::cuda
