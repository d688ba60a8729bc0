// Depthwise convolution on CUDA: 3x3, 5x5 and 7x7 kernels walk down strips of columns, all others gather over taps; dw
// is summed in ordered stages.
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/depthwise/cuda/depthwise_3x3.cuh"
#include "bantam/kernels/depthwise/cuda/depthwise_3x3_grad_weight.cuh"
#include "bantam/kernels/depthwise/cuda/depthwise_gather.cuh"
#include "bantam/kernels/depthwise/cuda/depthwise_wide.h"
#include "bantam/kernels/depthwise/depthwise_conv2d.h"
#include "bantam/kernels/depthwise/depthwise_parts.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kTaps = 9;  // taps whose sums a thread keeps

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

/// Forward over strips; also the input gradient at stride 1, `backwards`, over the shape of `turned`.
void strips_forward(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void* x, const void* w, void* y,
                    bool backwards) {
  const StripCut cut =
      cut_strips(s.batch, s.out_h(), s.out_w(), s.stride_h == 1 ? 4 : 2, s.channels / strip_channels(s.channels));
  if (cut.tasks == 0 || s.channels == 0) return;
  const Strips g = strips_of(s, cut);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *data = static_cast<const T*>(x), *weights = static_cast<const T*>(w);
    with_pack<T, 4>(
        [&](auto n) {
          constexpr int N = decltype(n)::value;
          const StripGrid grid = strip_grid(s.channels / N, cut.tasks);
          const auto kernel = s.stride_h == 1 ? depthwise_3x3_kernel<T, N, 1, 4> : depthwise_3x3_kernel<T, N, 2, 2>;
          kernel<<<grid.blocks, grid.block, 0, stream_of(exec)>>>(data, weights, static_cast<T*>(y), g, grid,
                                                                  backwards);
          check_launch("depthwise_3x3_kernel");
        },
        s.channels, x, w, y);
  });
}

/// The convolution of dy that computes dx at stride 1: with the kernel turned around, padded by kernel - 1 - pad
/// (negative padding crops).
DepthwiseConv2dShape turned(const DepthwiseConv2dShape& s) {
  DepthwiseConv2dShape t = s;
  t.in_h = s.out_h();
  t.in_w = s.out_w();
  t.pad_top = s.kernel_h - 1 - s.pad_top;
  t.pad_left = s.kernel_w - 1 - s.pad_left;
  t.pad_bottom = s.in_h + s.kernel_h - 1 - t.in_h - t.pad_top;
  t.pad_right = s.in_w + s.kernel_w - 1 - t.in_w - t.pad_left;
  return t;
}

void strips_spread(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void* dy, const void* w,
                   void* dx) {
  const StripCut cut = cut_strips(s.batch, (s.in_h + s.pad_top + 1) / 2, (s.in_w + s.pad_left + 1) / 2, 2,
                                  s.channels / strip_channels(s.channels));
  if (cut.tasks == 0 || s.channels == 0) return;
  const Strips g = strips_of(s, cut);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *gradient = static_cast<const T*>(dy), *weights = static_cast<const T*>(w);
    with_pack<T, 4>(
        [&](auto n) {
          constexpr int N = decltype(n)::value;
          const StripGrid grid = strip_grid(s.channels / N, cut.tasks);
          depthwise_3x3_spread_kernel<T, N, 2>
              <<<grid.blocks, grid.block, 0, stream_of(exec)>>>(gradient, weights, static_cast<T*>(dx), g, grid);
          check_launch("depthwise_3x3_spread_kernel");
        },
        s.channels, dy, w, dx);
  });
}

void strips_grad_weight(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void* x, const void* dy,
                        float* partials, const WriteSum& write) {
  const StripParts parts = grad_weight_strips(s);
  const Strips g = strips_of(s, parts.cut);
  const auto each = static_cast<std::uint32_t>(parts.tasks_each);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_pack<T, 4>(
        [&](auto n) {
          constexpr int N = decltype(n)::value;
          const StripGrid grid = strip_grid(s.channels / N, parts.cut.tasks, parts.tasks_each);
          const auto kernel = s.stride_h == 1 ? depthwise_3x3_grad_weight_kernel<T, N, 1, 4>
                                              : depthwise_3x3_grad_weight_kernel<T, N, 2, 2>;
          kernel<<<grid.blocks, grid.block, 0, stream_of(exec)>>>(static_cast<const T*>(x), static_cast<const T*>(dy),
                                                                  g, grid, each, partials, write);
          check_launch("depthwise_3x3_grad_weight_kernel");
        },
        s.channels, x, dy);
  });
  if (parts.parts > 1) add_strip_parts(exec, partials, parts.parts, s.w_elements(), write);
}

}  // namespace

void depthwise_conv2d_forward(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void* x,
                              const void* w, void* y) {
  if (fits_strips(s)) return strips_forward(exec, s, dtype, x, w, y, false);
  if (fits_wide_kernels(s, dtype, x, w, y)) return wide_forward(exec, s, dtype, x, w, y, false);
  const DepthwiseGather g = depthwise_gather(s, false);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *data = static_cast<const T*>(x), *weights = static_cast<const T*>(w);
    T* out = static_cast<T*>(y);
    with_pack<T, 4>([&](auto n) { launch_gather<T, decltype(n)::value, false>(exec, g, s.batch, data, weights, out); },
                    s.multiplier == 1 ? s.channels : 1, x, w, y);
  });
}

void depthwise_conv2d_grad_input(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void* dy,
                                 const void* w, void* dx) {
  if (fits_strips(s) && s.stride_h == 1) return strips_forward(exec, turned(s), dtype, dy, w, dx, true);
  if (fits_strips(s)) return strips_spread(exec, s, dtype, dy, w, dx);
  if (fits_wide_kernels(s, dtype, dy, w, dx)) {
    return s.stride_h == 1 ? wide_forward(exec, turned(s), dtype, dy, w, dx, true)
                           : wide_spread(exec, s, dtype, dy, w, dx);
  }
  const DepthwiseGather g = depthwise_gather(s, true);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *data = static_cast<const T*>(dy), *weights = static_cast<const T*>(w);
    T* out = static_cast<T*>(dx);
    with_pack<T, 4>([&](auto n) { launch_gather<T, decltype(n)::value, true>(exec, g, s.batch, data, weights, out); },
                    s.multiplier == 1 ? s.channels : 1, dy, w, dx);
  });
}

void depthwise_conv2d_grad_weight(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void* x,
                                  const void* dy, float* dw, bool accumulate, Workspace workspace) {
  if (s.w_elements() <= 0) return;
  require_workspace(workspace, depthwise_conv2d_grad_weight_workspace_bytes(s, dtype, DeviceKind::cuda),
                    "depthwise_conv2d_grad_weight");
  if (fits_strips(s) && s.y_elements() > 0)
    return strips_grad_weight(exec, s, dtype, x, dy, static_cast<float*>(workspace.data), {dw, accumulate});
  if (fits_wide_strips(s) && s.y_elements() > 0)
    return wide_grad_weight(exec, s, dtype, x, dy, static_cast<float*>(workspace.data), dw, accumulate);
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
