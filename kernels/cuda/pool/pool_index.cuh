// Index arithmetic of pooling on CUDA: a thread computes one position of a pack of channels.
#pragma once

#include "bantam/kernels/contracts/pool/pool2d.h"
#include "bantam/kernels/cuda/reduce/image_chunks.cuh"
#include "bantam/kernels/cuda/reduce/row_tiles.cuh"

namespace bantam::kernels::cuda {

inline constexpr int kPoolThreads = 256;

/// One axis. kTwo in the kernels: window and stride are both 2, known at compile time.
struct PoolAxis {
  int in, out, window, stride, pad;
  FastDivide by_stride;
};

/// First and one past the last of places in a window, or of windows.
struct Span {
  int begin, end;
};

/// The part of window o that is not padding, as places within the window.
template <bool kTwo>
__device__ inline Span real_places(const PoolAxis& a, int o) {
  const int start = o * (kTwo ? 2 : a.stride) - a.pad;
  return {max(0, -start), min(kTwo ? 2 : a.window, a.in - start)};
}

/// The windows that hold position i.
template <bool kTwo>
__device__ inline Span holding_windows(const PoolAxis& a, int i) {
  const int stride = kTwo ? 2 : a.stride, last = i + a.pad, first = last - (kTwo ? 2 : a.window) + 1;
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
  const Span rows = real_places<false>(p.h, oh), columns = real_places<false>(p.w, ow);
  const int count = count_padding ? p.h.window * p.w.window : (rows.end - rows.begin) * (columns.end - columns.begin);
  return 1.0f / static_cast<float>(count);
}

inline PoolAxis pool_axis(std::int64_t in, std::int64_t out, std::int64_t window, std::int64_t stride,
                          std::int64_t pad) {
  return {extent(in), extent(out), extent(window), extent(stride), extent(pad), FastDivide(stride)};
}

inline Pool pool(const Pool2dShape& s) {
  Pool p{};
  p.h = pool_axis(s.in_h, s.out_h(), s.window_h, s.stride_h, s.pad_top);
  p.w = pool_axis(s.in_w, s.out_w(), s.window_w, s.stride_w, s.pad_left);
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
