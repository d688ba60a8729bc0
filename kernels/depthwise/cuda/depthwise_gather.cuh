// Depthwise forward and input gradient of any kernel on CUDA: a thread gathers N channels of one position.
#pragma once

#include "bantam/kernels/common/cuda/reduce/image_chunks.cuh"
#include "bantam/kernels/common/cuda/reduce/row_tiles.cuh"
#include "bantam/kernels/depthwise/depthwise_conv2d.h"

namespace bantam::kernels::cuda {

inline constexpr int kGatherThreads = 128;

/// A gather: out (batch, out_h, out_w, out_channels) from data (batch, in_h, in_w, data_channels) and weights (taps,
/// weight_channels).
struct DepthwiseGather {
  int in_h, in_w, out_h, out_w;
  int kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
  int data_channels, out_channels, weight_channels, multiplier;
  FastDivide by_packs, by_columns, by_rows;  // a thread's index: (image, row, column, pack of channels)
  FastDivide by_stride_h, by_stride_w, by_multiplier;
};

inline DepthwiseGather depthwise_gather(const DepthwiseConv2dShape& s, bool transposed) {
  DepthwiseGather g{};
  g.in_h = extent(transposed ? s.out_h() : s.in_h);
  g.in_w = extent(transposed ? s.out_w() : s.in_w);
  g.out_h = extent(transposed ? s.in_h : s.out_h());
  g.out_w = extent(transposed ? s.in_w : s.out_w());
  g.kernel_h = extent(s.kernel_h);
  g.kernel_w = extent(s.kernel_w);
  g.stride_h = extent(s.stride_h);
  g.stride_w = extent(s.stride_w);
  g.pad_top = extent(s.pad_top);
  g.pad_left = extent(s.pad_left);
  g.dilation_h = extent(s.dilation_h);
  g.dilation_w = extent(s.dilation_w);
  g.weight_channels = extent(s.out_channels());
  g.data_channels = transposed ? g.weight_channels : extent(s.channels);
  g.out_channels = transposed ? extent(s.channels) : g.weight_channels;
  g.multiplier = extent(s.multiplier);
  g.by_stride_h = FastDivide(s.stride_h);
  g.by_stride_w = FastDivide(s.stride_w);
  g.by_multiplier = FastDivide(s.multiplier);
  return g;
}

/// The place that a thread works on: channels c.. of one position of one image.
struct GatherPlace {
  std::int64_t image;
  int row, column, c;
};

template <int N>
__device__ inline GatherPlace gather_place(const DepthwiseGather& g, std::uint32_t thread) {
  const Divided pack = g.by_packs.divide(thread);
  const Divided column = g.by_columns.divide(pack.quotient);
  const Divided row = g.by_rows.divide(column.quotient);
  return {static_cast<std::int64_t>(row.quotient), static_cast<int>(row.remainder), static_cast<int>(column.remainder),
          static_cast<int>(pack.remainder) * N};
}

/// Where tap k of an axis reads for output o; false where it reads padding, or nothing (transposed, between strides).
template <bool kTransposed>
__device__ inline bool tap_position(int o, int k, int stride, const FastDivide& by_stride, int pad, int dilation,
                                    int in, int& position) {
  if constexpr (kTransposed) {
    const int scaled = o + pad - k * dilation;
    if (scaled < 0) return false;
    const Divided at = by_stride.divide(static_cast<std::uint32_t>(scaled));
    position = static_cast<int>(at.quotient);
    return at.remainder == 0 && position < in;
  } else {
    position = o * stride - pad + k * dilation;
    return position >= 0 && position < in;
  }
}

/// Any kernel, stride, dilation; any multiplier where N is 1.
template <class T, int N, bool kTransposed>
__global__ void __launch_bounds__(kGatherThreads)
    depthwise_gather_kernel(const T* data, const T* weights, T* out, DepthwiseGather g, std::uint32_t threads) {
  const std::uint32_t thread = blockIdx.x * kGatherThreads + threadIdx.x;
  if (thread >= threads) return;
  const GatherPlace at = gather_place<N>(g, thread);
  // Forward: output channel c reads channel c / multiplier. Transposed: channel c sums its `multiplier` filters.
  const int weight_c = kTransposed ? at.c * g.multiplier : at.c;
  const int data_c =
      kTransposed ? weight_c : static_cast<int>(g.by_multiplier.quotient(static_cast<std::uint32_t>(at.c)));
  const int filters = kTransposed ? g.multiplier : 1;
  float sum[N] = {};
  for (int kh = 0; kh < g.kernel_h; ++kh) {
    int ih = 0, iw = 0;
    if (!tap_position<kTransposed>(at.row, kh, g.stride_h, g.by_stride_h, g.pad_top, g.dilation_h, g.in_h, ih))
      continue;
    for (int kw = 0; kw < g.kernel_w; ++kw) {
      if (!tap_position<kTransposed>(at.column, kw, g.stride_w, g.by_stride_w, g.pad_left, g.dilation_w, g.in_w, iw))
        continue;
      const T* from = data + ((at.image * g.in_h + ih) * g.in_w + iw) * g.data_channels + data_c;
      const T* tap = weights + static_cast<std::int64_t>(kh * g.kernel_w + kw) * g.weight_channels + weight_c;
      for (int q = 0; q < filters; ++q) {
        float d[N], w[N];
        unpack<N>(from + q, d);
        unpack<N>(tap + q, w);
#pragma unroll
        for (int n = 0; n < N; ++n) sum[n] += d[n] * w[n];
      }
    }
  }
  repack<N>(sum, out + ((at.image * g.out_h + at.row) * g.out_w + at.column) * g.out_channels + at.c);
}

/// Calls launch(blocks, threads, first element of data, first element of out) for chunks of images; sets the index
/// divisors of `g`.
template <int N, class Launch>
void for_gather_chunks(DepthwiseGather& g, std::int64_t batch, Launch&& launch) {
  const std::int64_t packs = g.out_channels / N;
  if (packs <= 0 || g.out_w <= 0 || g.out_h <= 0) return;
  g.by_packs = FastDivide(packs);
  g.by_columns = FastDivide(g.out_w);
  g.by_rows = FastDivide(g.out_h);
  for_image_chunks(batch, packs * g.out_w * g.out_h, [&](std::int64_t first, std::int64_t, std::uint32_t threads) {
    launch(blocks_for(threads, kGatherThreads), threads, first * g.in_h * g.in_w * g.data_channels,
           first * g.out_h * g.out_w * g.out_channels);
    check_launch("depthwise convolution");
  });
}

template <class T, int N, bool kTransposed>
void launch_gather(const Exec& exec, DepthwiseGather g, std::int64_t batch, const T* data, const T* weights, T* out) {
  for_gather_chunks<N>(g, batch, [&](unsigned blocks, std::uint32_t threads, std::int64_t from, std::int64_t to) {
    depthwise_gather_kernel<T, N, kTransposed>
        <<<blocks, kGatherThreads, 0, stream_of(exec)>>>(data + from, weights, out + to, g, threads);
  });
}

}  // namespace bantam::kernels::cuda
