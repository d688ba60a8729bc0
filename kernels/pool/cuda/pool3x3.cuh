// Max pooling of 3x3 windows at stride 2 on CUDA: every load of a window is under way at once, and a thread of the
// gradient does the four positions that the same four windows reach.
#pragma once

#include <math_constants.h>

#include "bantam/kernels/pool/cuda/pool_index.cuh"

namespace bantam::kernels::cuda {

inline bool is_three(const Pool2dShape& s) {
  return s.window_h == 3 && s.window_w == 3 && s.stride_h == 2 && s.stride_w == 2 && s.pad_top == s.pad_left &&
         s.pad_top <= 1 && s.dilation_h == 1 && s.dilation_w == 1;
}

/// As max_pool_kernel: the first maximum wins, and NaN wins over numbers.
template <class T, int N>
__global__ void __launch_bounds__(kPoolThreads)
    max_pool3_kernel(const T* x, T* y, std::uint16_t* winner, Pool p, std::uint32_t threads) {
  const std::uint32_t thread = blockIdx.x * kPoolThreads + threadIdx.x;
  if (thread >= threads) return;
  const PoolPlace at = pool_place<N>(p, thread);
  const int top = at.row * 2 - p.h.pad, left = at.column * 2 - p.w.pad;
  const auto real = [&](int i) {
    return static_cast<unsigned>(top + i / 3) < static_cast<unsigned>(p.h.in) &&
           static_cast<unsigned>(left + i % 3) < static_cast<unsigned>(p.w.in);
  };
  Pack<T, N> loaded[9];
#pragma unroll
  for (int i = 0; i < 9; ++i)
    if (real(i)) loaded[i] = load_pack<N>(x + offset_in(at, p.h.in, p.w.in, top + i / 3, left + i % 3, p.channels));
  float best[N];
  Pack<std::uint16_t, N> place;
#pragma unroll
  for (int n = 0; n < N; ++n) {
    best[n] = -CUDART_INF_F;
    place.v[n] = static_cast<std::uint16_t>((top < 0 ? 3 : 0) + (left < 0 ? 1 : 0));
  }
#pragma unroll
  for (int i = 0; i < 9; ++i) {
    if (!real(i)) continue;
    float v[N];
    unpack<N>(loaded[i], v);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (v[n] > best[n] || (v[n] != v[n] && best[n] == best[n])) {
        best[n] = v[n];
        place.v[n] = static_cast<std::uint16_t>(i);
      }
    }
  }
  const std::int64_t to = offset_in(at, p.h.out, p.w.out, at.row, at.column, p.channels);
  repack<N>(best, y + to);
  if (winner) *reinterpret_cast<Pack<std::uint16_t, N>*>(winner + to) = place;
}

/// Positions of x are assigned two by two: rows 2·row and 2·row + 1, which lie in the windows kFirstWindow + row and
/// the next one; columns alike.
template <int kPad>
inline constexpr int kFirstWindow = kPad == 1 ? 0 : -1;

/// Row of its window that position 2·row + i is, in the window kFirstWindow + row + a; none where outside [0, 3).
template <int kPad>
__device__ constexpr int place_of(int i, int a) {
  return i + kPad - 2 * (kFirstWindow<kPad> + a);
}

template <class T, int N, int kPad>
__global__ void __launch_bounds__(kPoolThreads)
    max_pool3_grad_kernel(const T* dy, const std::uint16_t* winner, T* dx, Pool p, std::uint32_t threads) {
  const std::uint32_t thread = blockIdx.x * kPoolThreads + threadIdx.x;
  if (thread >= threads) return;
  const PoolPlace at = pool_place<N>(p, thread);
  Pack<std::uint16_t, N> won[4];
  Pack<T, N> loaded[4];
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const int oh = at.row + kFirstWindow<kPad> + w / 2, ow = at.column + kFirstWindow<kPad> + w % 2;
    const bool real = oh >= 0 && oh < p.h.out && ow >= 0 && ow < p.w.out;
    const std::int64_t from = offset_in(at, p.h.out, p.w.out, real ? oh : 0, real ? ow : 0, p.channels);
    won[w] = *reinterpret_cast<const Pack<std::uint16_t, N>*>(winner + from);
    loaded[w] = load_pack<N>(dy + from);
    if (real) continue;
#pragma unroll
    for (int n = 0; n < N; ++n) won[w].v[n] = 0xffff;  // no position's place
  }
  float sum[4][N] = {};
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    float g[N];
    unpack<N>(loaded[w], g);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = place_of<kPad>(i / 2, w / 2), column = place_of<kPad>(i % 2, w % 2);
      if (row < 0 || row > 2 || column < 0 || column > 2) continue;
#pragma unroll
      for (int n = 0; n < N; ++n) sum[i][n] += won[w].v[n] == row * 3 + column ? g[n] : 0.0f;
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = at.row * 2 + i / 2, column = at.column * 2 + i % 2;
    if (row < p.h.in && column < p.w.in) repack<N>(sum[i], dx + offset_in(at, p.h.in, p.w.in, row, column, p.channels));
  }
}

}  // namespace bantam::kernels::cuda
