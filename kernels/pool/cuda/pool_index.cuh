// Index arithmetic of pooling on CUDA: a thread computes one position of a pack of channels.
#pragma once

#include "bantam/kernels/common/cuda/reduce/image_chunks.cuh"
#include "bantam/kernels/common/cuda/reduce/row_tiles.cuh"
#include "bantam/kernels/pool/pool2d.h"

namespace bantam::kernels::cuda {

inline constexpr int kPoolThreads = 256;

/// One axis. kTwo in the kernels: window and stride are both 2, known at compile time.
struct PoolAxis {
  int in, out, window, stride, pad, pad_after, dilation;
  FastDivide by_stride, by_dilation;

  /// ⌈n/dilation⌉; n from 0.
  __device__ int dilated(int n) const {
    return dilation == 1 ? n : static_cast<int>(by_dilation.quotient(static_cast<std::uint32_t>(n + dilation - 1)));
  }
};

/// First and one past the last of places in a window, or of windows.
struct Span {
  int begin, end;
};

/// The part of window o that is not padding, as places within the window.
template <bool kTwo>
__device__ inline Span real_places(const PoolAxis& a, int o) {
  const int start = o * (kTwo ? 2 : a.stride) - a.pad;
  if (kTwo) return {max(0, -start), min(2, a.in - start)};
  return {a.dilated(max(0, -start)), min(a.window, a.dilated(max(0, a.in - start)))};
}

/// How many places of window o a mean counts.
__device__ inline int counted_places(const PoolAxis& a, bool count_padding, int o) {
  if (count_padding) return min(a.window, a.dilated(max(0, a.in + a.pad + a.pad_after - o * a.stride)));
  const Span real = real_places<false>(a, o);
  return real.end - real.begin;
}

/// Which place of window o, which reaches over position i, that is; -1: none.
template <bool kTwo>
__device__ inline int place_in_window(const PoolAxis& a, int o, int i) {
  const int within = i + a.pad - o * (kTwo ? 2 : a.stride);
  if (kTwo || a.dilation == 1) return within;
  const Divided place = a.by_dilation.divide(static_cast<std::uint32_t>(within));
  return place.remainder == 0 ? static_cast<int>(place.quotient) : -1;
}

/// The windows that reach over position i; with dilation some of them pass over it.
template <bool kTwo>
__device__ inline Span holding_windows(const PoolAxis& a, int i) {
  const int stride = kTwo ? 2 : a.stride, last = i + a.pad, first = last - (kTwo ? 1 : (a.window - 1) * a.dilation);
  const auto quotient = [&](int n) {
    return kTwo ? n >> 1 : static_cast<int>(a.by_stride.quotient(static_cast<std::uint32_t>(n)));
  };
  return {first <= 0 ? 0 : quotient(first + stride - 1), min(a.out, quotient(last) + 1)};
}

struct Pool {
  PoolAxis h, w;
  int channels;
  FastDivide by_packs, by_columns, by_rows;  // a thread's index: (image, row, column, pack of channels)
};

struct PoolPlace {
  std::int64_t image;
  int row, column, c;
};

template <int N>
__device__ inline PoolPlace pool_place(const Pool& p, std::uint32_t thread) {
  const Divided pack = p.by_packs.divide(thread);
  const Divided column = p.by_columns.divide(pack.quotient);
  const Divided row = p.by_rows.divide(column.quotient);
  return {static_cast<std::int64_t>(row.quotient), static_cast<int>(row.remainder), static_cast<int>(column.remainder),
          static_cast<int>(pack.remainder) * N};
}

__device__ inline std::int64_t offset_in(const PoolPlace& at, int height, int width, int row, int column,
                                         int channels) {
  return ((at.image * height + row) * width + column) * channels + at.c;
}

/// One over the number of positions that window (oh, ow) is averaged over.
__device__ inline float inverse_divisor(const Pool& p, bool count_padding, int oh, int ow) {
  return 1.0f / static_cast<float>(counted_places(p.h, count_padding, oh) * counted_places(p.w, count_padding, ow));
}

inline Pool pool(const Pool2dShape& s) {
  Pool p{};
  p.h = {extent(s.in_h),       extent(s.out_h()),    extent(s.window_h),     extent(s.stride_h),      extent(s.pad_top),
         extent(s.pad_bottom), extent(s.dilation_h), FastDivide(s.stride_h), FastDivide(s.dilation_h)};
  p.w = {extent(s.in_w),      extent(s.out_w()),    extent(s.window_w),     extent(s.stride_w),      extent(s.pad_left),
         extent(s.pad_right), extent(s.dilation_w), FastDivide(s.stride_w), FastDivide(s.dilation_w)};
  p.channels = extent(s.channels);
  return p;
}

/// Calls launch(blocks, threads, p, first element of x, first element of y) for chunks of images, a thread for each N
/// channels of every place of height x width.
template <int N, class Launch>
void launch_pool_places(Pool p, std::int64_t batch, int height, int width, Launch&& launch) {
  const std::int64_t packs = p.channels / N;
  if (height <= 0 || width <= 0 || packs <= 0) return;
  p.by_packs = FastDivide(packs);
  p.by_columns = FastDivide(width);
  p.by_rows = FastDivide(height);
  for_image_chunks(batch, packs * height * width, [&](std::int64_t first, std::int64_t, std::uint32_t threads) {
    launch(blocks_for(threads, kPoolThreads), threads, p, first * p.h.in * p.w.in * p.channels,
           first * p.h.out * p.w.out * p.channels);
    check_launch("pooling");
  });
}

/// A thread for each N channels of every position of y, or of x where `over_input`.
template <int N, class Launch>
void launch_pool(const Pool& p, std::int64_t batch, bool over_input, Launch&& launch) {
  launch_pool_places<N>(p, batch, over_input ? p.h.in : p.h.out, over_input ? p.w.in : p.w.out,
                        std::forward<Launch>(launch));
}

}  // namespace bantam::kernels::cuda
