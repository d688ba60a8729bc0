// Max pooling of 3x3 windows at stride 2 (is_three) on CUDA: every load of a window is under way at once, and a thread
// of the gradient does the four positions that the same four windows reach.
#pragma once

#include <math_constants.h>

#include "bantam/kernels/pool/cuda/pool_index.cuh"

namespace bantam::kernels::cuda {

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

/// Positions of x are assigned to threads by quads: quad (i, j) has rows 2i + 1 and 2i + 2 of the padded image, which
/// lie in windows i and i + 1 alone; columns alike. Without padding the first quad of an axis has index -1.
inline int quads_along(const PoolAxis& a) { return (a.in + 2 - a.pad) / 2; }

template <int N>
__device__ inline PoolPlace quad_place(const Pool& p, std::uint32_t thread) {
  PoolPlace quad = pool_place<N>(p, thread);
  quad.row += p.h.pad - 1;
  quad.column += p.w.pad - 1;
  return quad;
}

/// Two rows by two columns of an image (height, width, channels), the k-th in row k / 2 and column k % 2.
struct Square {
  std::int64_t image;  ///< offset of the image
  int corner;          ///< of the first position, within the image
  int down, right;     ///< to the next row and column; 0 where that or the first is outside the image
  bool row[2], column[2];

  Square() = default;
  __device__ Square(const PoolPlace& at, int height, int width, int channels, int top, int left)
      : image(at.image * (height * width * channels)),
        corner((max(0, min(top, height - 1)) * width + max(0, min(left, width - 1))) * channels + at.c),
        row{top >= 0 && top < height, top + 1 < height},
        column{left >= 0 && left < width, left + 1 < width} {
    down = row[0] && row[1] ? width * channels : 0;
    right = column[0] && column[1] ? channels : 0;
  }

  __device__ bool is_in_image(int k) const { return row[k / 2] && column[k % 2]; }
  /// The k-th position of an array; another of the image where it is outside.
  template <class T>
  __device__ T* of(T* array, int k) const {
    return array + image + (corner + (k / 2 == 1 ? down : 0) + (k % 2 == 1 ? right : 0));
  }
};

/// The positions of a quad in x, and its windows in y.
__device__ inline Square positions_of(const Pool& p, const PoolPlace& quad) {
  return {quad, p.h.in, p.w.in, p.channels, 2 * quad.row + 1 - p.h.pad, 2 * quad.column + 1 - p.w.pad};
}
__device__ inline Square windows_of(const Pool& p, const PoolPlace& quad) {
  return {quad, p.h.out, p.w.out, p.channels, quad.row, quad.column};
}

/// The place of a quad's position k in window w of its four; -1: the window does not reach it.
__device__ constexpr int place_in_window(int k, int w) {
  const int row = k / 2 + 1 - 2 * (w / 2), column = k % 2 + 1 - 2 * (w % 2);
  return row >= 0 && column >= 0 ? row * 3 + column : -1;
}

/// The four windows that reach a quad's positions: their winners, places as numbers of type W, and gradients.
template <class T, class W, int N>
struct QuadWindows {
  LoadedPack<W, N> won[4];
  LoadedPack<T, N> dy[4];

  __device__ static QuadWindows load(const Pool& p, const PoolPlace& quad, const T* dy, const W* winner) {
    const Square square = windows_of(p, quad);
    QuadWindows windows;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      windows.won[w] = LoadedPack<W, N>::from(square.of(winner, w));
      windows.dy[w] = LoadedPack<T, N>::from(square.of(dy, w));
      for (std::uint32_t& word : windows.won[w].words)
        if (!square.is_in_image(w)) word = 0xffffffffu;  // no position's place
    }
    return windows;
  }
  /// The gradient of position k, channel n: Σ dy over the windows that it won, in their order.
  __device__ float gradient(int k, int n) const {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const int place = place_in_window(k, w);
      if (place >= 0 && won[w].pack().v[n] == place) sum += to_float(dy[w].pack().v[n]);
    }
    return sum;
  }
};

template <class T, int N>
__global__ void __launch_bounds__(kPoolThreads)
    max_pool3_grad_kernel(const T* dy, const std::uint16_t* winner, T* dx, Pool p, std::uint32_t threads) {
  const std::uint32_t thread = blockIdx.x * kPoolThreads + threadIdx.x;
  if (thread >= threads) return;
  const PoolPlace quad = quad_place<N>(p, thread);
  const Square square = positions_of(p, quad);
  const auto windows = QuadWindows<T, std::uint16_t, N>::load(p, quad, dy, winner);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (!square.is_in_image(k)) continue;
    float sum[N];
#pragma unroll
    for (int n = 0; n < N; ++n) sum[n] = windows.gradient(k, n);
    repack<N>(sum, square.of(dx, k));
  }
}

}  // namespace bantam::kernels::cuda
