// Depthwise convolution on CUDA: forward and input gradient gather over taps; dw is summed in two ordered stages.
#include "bantam/kernels/cuda/depthwise_gather.cuh"
#include "bantam/kernels/depthwise_conv2d.h"
#include "bantam/kernels/depthwise_parts.h"
#include "bantam/kernels/workspace_layout.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kTaps = 9;  // taps whose sums a thread keeps

bool is_plain_3x3(const DepthwiseConv2dShape& s) {
  return s.kernel_h == 3 && s.kernel_w == 3 && s.dilation_h == 1 && s.dilation_w == 1 && s.multiplier == 1 &&
         s.stride_h == s.stride_w && s.stride_h <= 2;
}

/// Extents of the weight gradient, and the divisors of its indices.
struct WeightGradient {
  int in_h, in_w, out_w, kernel_w, taps;
  int stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
  std::int64_t rows, channels, out_channels;
  FastDivide by_out_h, by_out_w, by_multiplier;
};

WeightGradient weight_gradient(const DepthwiseConv2dShape& s) {
  return {extent(s.in_h),
          extent(s.in_w),
          extent(s.out_w()),
          extent(s.kernel_w),
          extent(s.kernel_h * s.kernel_w),
          extent(s.stride_h),
          extent(s.stride_w),
          extent(s.pad_top),
          extent(s.pad_left),
          extent(s.dilation_h),
          extent(s.dilation_w),
          s.batch * s.out_h(),
          extent(s.channels),
          extent(s.out_channels()),
          FastDivide(std::max<std::int64_t>(s.out_h(), 1)),
          FastDivide(std::max<std::int64_t>(s.out_w(), 1)),
          FastDivide(s.multiplier)};
}

/// Sums of taps [9·blockIdx.z, 9·blockIdx.z + 9) over part blockIdx.y of the rows of dy, for N channels a thread. With
/// one part the sums go to write(index in dw, sum), else to partials (parts, taps, out_channels). k3x3: the kernel is
/// 3x3, so taps are known at compile time.
template <class T, int N, bool k3x3>
__global__ void __launch_bounds__(kTileThreads)
    depthwise_grad_weight_kernel(const T* x, const T* dy, WeightGradient g, float* partials, WriteSum write) {
  const std::int64_t c = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  const int first_tap = static_cast<int>(blockIdx.z) * kTaps;
  int tap_h[kTaps], tap_w[kTaps];  // rows and columns of x from where the first tap would read
#pragma unroll
  for (int t = 0; t < kTaps; ++t) {
    const int tap = first_tap + t, width = k3x3 ? 3 : g.kernel_w;
    tap_h[t] = tap < g.taps ? tap / width * g.dilation_h - g.pad_top : -(1 << 30);  // past the last: always outside
    tap_w[t] = tap % width * g.dilation_w - g.pad_left;
  }
  float sum[kTaps * N] = {};
  if (c < g.out_channels) {
    const std::int64_t x_c = N > 1 ? c : g.by_multiplier.quotient(static_cast<std::uint32_t>(c));
    const std::int64_t begin = part_begin(g.rows, gridDim.y, blockIdx.y);
    const auto rows = static_cast<std::uint32_t>(part_begin(g.rows, gridDim.y, blockIdx.y + 1) - begin);
    const std::uint32_t count = rows * static_cast<std::uint32_t>(g.out_w);
    for (std::uint32_t i = threadIdx.y; i < count; i += blockDim.y) {
      const Divided column = g.by_out_w.divide(i);
      const std::int64_t row = begin + column.quotient;
      const Divided image = g.by_out_h.divide(static_cast<std::uint32_t>(row));
      const int ih0 = static_cast<int>(image.remainder) * g.stride_h,
                iw0 = static_cast<int>(column.remainder) * g.stride_w;
      float gradient[N];
      unpack<N>(dy + (row * g.out_w + column.remainder) * g.out_channels + c, gradient);
#pragma unroll
      for (int t = 0; t < kTaps; ++t) {
        const int ih = ih0 + tap_h[t], iw = iw0 + tap_w[t];
        if (ih < 0 || ih >= g.in_h || iw < 0 || iw >= g.in_w) continue;
        float v[N];
        const std::int64_t position = (static_cast<std::int64_t>(image.quotient) * g.in_h + ih) * g.in_w + iw;
        unpack<N>(x + position * g.channels + x_c, v);
#pragma unroll
        for (int n = 0; n < N; ++n) sum[t * N + n] += v[n] * gradient[n];
      }
    }
  }
  sum_over_block_rows(sum, [&](int i, int lane, float total) {
    const std::int64_t channel = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + lane) * N + i % N;
    const int tap = first_tap + i / N;
    if (channel >= g.out_channels || tap >= g.taps) return;
    const std::int64_t at = tap * g.out_channels + channel;
    if (gridDim.y == 1) {
      write(at, total);
    } else {
      partials[static_cast<std::int64_t>(blockIdx.y) * g.taps * g.out_channels + at] = total;
    }
  });
}

}  // namespace

void depthwise_conv2d_forward(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void* x,
                              const void* w, void* y) {
  const DepthwiseGather g = depthwise_gather(s, false);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *data = static_cast<const T*>(x), *weights = static_cast<const T*>(w);
    T* out = static_cast<T*>(y);
    with_pack<T, 4>(
        [&](auto n) {
          constexpr int N = decltype(n)::value;
          if (is_plain_3x3(s) && s.stride_h == 1) {
            launch_3x3<T, N, 1>(exec, g, s.batch, false, data, weights, out);
          } else if (is_plain_3x3(s)) {
            launch_3x3<T, N, 2>(exec, g, s.batch, false, data, weights, out);
          } else {
            launch_gather<T, N, false>(exec, g, s.batch, data, weights, out);
          }
        },
        s.multiplier == 1 ? s.channels : 1, x, w, y);
  });
}

void depthwise_conv2d_grad_input(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void* dy,
                                 const void* w, void* dx) {
  DepthwiseGather g = depthwise_gather(s, true);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *data = static_cast<const T*>(dy), *weights = static_cast<const T*>(w);
    T* out = static_cast<T*>(dx);
    with_pack<T, 4>(
        [&](auto n) {
          constexpr int N = decltype(n)::value;
          if (is_plain_3x3(s) && s.stride_h == 1) {
            // A convolution of dy with the kernel turned around, padded by 2 - pad (negative padding crops).
            DepthwiseGather turned = g;
            turned.pad_top = 2 - g.pad_top;
            turned.pad_left = 2 - g.pad_left;
            launch_3x3<T, N, 1>(exec, turned, s.batch, true, data, weights, out);
          } else {
            launch_gather<T, N, true>(exec, g, s.batch, data, weights, out);
          }
        },
        s.multiplier == 1 ? s.channels : 1, dy, w, dx);
  });
}

void depthwise_conv2d_grad_weight(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void* x,
                                  const void* dy, float* dw, bool accumulate, Workspace workspace) {
  if (s.w_elements() <= 0) return;
  require_workspace(workspace, depthwise_conv2d_grad_weight_workspace_bytes(s, dtype, DeviceKind::cuda),
                    "depthwise_conv2d_grad_weight");
  const std::int64_t parts = depthwise_grad_weight_parts(s, DeviceKind::cuda);
  const WeightGradient g = weight_gradient(s);
  if (g.rows >> 31 != 0 || ((g.rows / parts + 1) * g.out_w) >> 31 != 0) {
    throw ShapeError("depthwise_conv2d_grad_weight: the batch is too large for one call on CUDA (2^31 rows)");
  }
  float* partials = static_cast<float*>(workspace.data);
  const WriteSum write{dw, accumulate};
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *in = static_cast<const T*>(x), *gradient = static_cast<const T*>(dy);
    with_pack<T, 4>(
        [&](auto n) {
          constexpr int N = decltype(n)::value;
          const std::int64_t packs = g.out_channels / N;
          const dim3 block = tile_block(packs);
          const dim3 grid(blocks_for(packs, block.x), static_cast<unsigned>(parts), blocks_for(g.taps, kTaps));
          if (s.kernel_h == 3 && s.kernel_w == 3) {
            depthwise_grad_weight_kernel<T, N, true>
                <<<grid, block, 0, stream_of(exec)>>>(in, gradient, g, partials, write);
          } else {
            depthwise_grad_weight_kernel<T, N, false>
                <<<grid, block, 0, stream_of(exec)>>>(in, gradient, g, partials, write);
          }
          check_launch("depthwise_grad_weight_kernel");
        },
        s.multiplier == 1 ? s.channels : 1, x, dy);
  });
  if (parts > 1) add_parts(exec, partials, parts, s.w_elements(), write);
}

}  // namespace bantam::kernels::cuda
