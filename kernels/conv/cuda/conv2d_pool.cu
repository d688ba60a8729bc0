// Convolution with pooling on a GPU: kernels of few channels, and plain loops where the device or an address has none.
#include <algorithm>

#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/common/cuda/numeric.cuh"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/conv/conv2d_pool.h"
#include "bantam/kernels/conv/cuda/few_channels.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kThreads = 256;

/// A convolution with stride 1, without dilation and groups, and its windows.
struct PooledConvolution {
  explicit PooledConvolution(const Conv2dShape& s)
      : batch(s.batch),
        in_h(s.in_h),
        in_w(s.in_w),
        in_channels(s.in_channels),
        out_channels(s.out_channels),
        pooled_h(s.out_h() / 2),
        pooled_w(s.out_w() / 2),
        kernel_h(s.kernel_h),
        kernel_w(s.kernel_w),
        pad_top(s.pad_top),
        pad_left(s.pad_left) {}
  std::int64_t batch, in_h, in_w, in_channels, out_channels, pooled_h, pooled_w, kernel_h, kernel_w, pad_top, pad_left;

  __host__ __device__ std::int64_t pooled_elements() const { return batch * pooled_h * pooled_w * out_channels; }
  /// Where a pixel of x begins, or -1 outside the image.
  __device__ std::int64_t pixel(std::int64_t image, std::int64_t row, std::int64_t column) const {
    if (row < 0 || row >= in_h || column < 0 || column >= in_w) return -1;
    return ((image * in_h + row) * in_w + column) * in_channels;
  }
};

/// One value of the convolution, rounded as it would be stored.
template <class T>
__device__ float convolved(const T* __restrict__ x, const T* __restrict__ w, const PooledConvolution& g,
                           std::int64_t image, std::int64_t row, std::int64_t column, std::int64_t out) {
  float sum = 0.0f;
  for (std::int64_t a = 0; a < g.kernel_h; ++a) {
    for (std::int64_t b = 0; b < g.kernel_w; ++b) {
      const std::int64_t from = g.pixel(image, row - g.pad_top + a, column - g.pad_left + b);
      const T* const weights = w + ((out * g.kernel_h + a) * g.kernel_w + b) * g.in_channels;
      if (from < 0) continue;
      for (std::int64_t c = 0; c < g.in_channels; ++c) sum = fmaf(to_float(x[from + c]), to_float(weights[c]), sum);
    }
  }
  return to_float(from_float<T>(sum));
}

/// A thread a window and channel.
template <class T>
__global__ void __launch_bounds__(kThreads)
    plain_pool_forward(const T* __restrict__ x, const T* __restrict__ w, T* __restrict__ y,
                       std::uint16_t* __restrict__ winner, const PooledConvolution g) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < g.pooled_elements();
       i += step) {
    const std::int64_t out = i % g.out_channels, window = i / g.out_channels, column = window % g.pooled_w,
                       row = window / g.pooled_w % g.pooled_h, image = window / (g.pooled_w * g.pooled_h);
    float best = convolved(x, w, g, image, 2 * row, 2 * column, out);
    int place = 0;
    for (int p = 1; p < 4; ++p) {
      const float value = convolved(x, w, g, image, 2 * row + p / 2, 2 * column + p % 2, out);
      const bool exceeds = value > best || (value != value && best == best);
      best = exceeds ? value : best;
      place = exceeds ? p : place;
    }
    y[i] = from_float<T>(best);
    if (winner != nullptr) winner[i] = static_cast<std::uint16_t>(place);
  }
}

/// A block an element of dw: each thread's windows in order, then the threads in a fixed tree.
template <class T>
__global__ void __launch_bounds__(kThreads)
    plain_pool_grad_weight(const T* __restrict__ x, const T* __restrict__ dy, const std::uint16_t* __restrict__ winner,
                           float* __restrict__ dw, bool accumulate, const PooledConvolution g) {
  __shared__ float sums[kThreads];
  const std::int64_t element = blockIdx.x, c = element % g.in_channels, tap = element / g.in_channels,
                     b = tap % g.kernel_w, a = tap / g.kernel_w % g.kernel_h, out = tap / (g.kernel_w * g.kernel_h);
  float sum = 0.0f;
  for (std::int64_t window = threadIdx.x; window < g.batch * g.pooled_h * g.pooled_w; window += kThreads) {
    const std::int64_t column = window % g.pooled_w, row = window / g.pooled_w % g.pooled_h,
                       image = window / (g.pooled_w * g.pooled_h), at = window * g.out_channels + out;
    const int place = winner[at];
    const std::int64_t from =
        g.pixel(image, 2 * row + place / 2 - g.pad_top + a, 2 * column + place % 2 - g.pad_left + b);
    if (from >= 0) sum = fmaf(to_float(dy[at]), to_float(x[from + c]), sum);
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) dw[element] = accumulate ? dw[element] + sums[0] : sums[0];
}

void require_supported(const Conv2dShape& shape, DType dtype) {
  if (!conv2d_pool_supports(shape, dtype, DeviceKind::cuda))
    throw ShapeError("conv2d_pool: expected a 3x3 convolution of few channels over large images, in a half type");
}

}  // namespace

void conv2d_pool_forward(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w, void* y,
                         std::uint16_t* winner, Workspace) {
  require_supported(shape, dtype);
  if (few_channels_conv2d_pool_forward(exec, shape, dtype, x, w, y, winner)) return;
  const PooledConvolution g(shape);
  constexpr std::int64_t kMostBlocks = 1 << 16;  // threads stride over what is left
  const auto blocks = static_cast<unsigned>(std::min((g.pooled_elements() + kThreads - 1) / kThreads, kMostBlocks));
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    plain_pool_forward<<<blocks, kThreads, 0, stream_of(exec)>>>(static_cast<const T*>(x), static_cast<const T*>(w),
                                                                 static_cast<T*>(y), winner, g);
    check_launch("plain_pool_forward");
  });
}

void conv2d_pool_grad_weight(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* dy,
                             const std::uint16_t* winner, const Conv2dWeightGradient& to, Workspace workspace) {
  require_supported(shape, dtype);
  require_workspace(workspace, conv2d_pool_workspace_bytes(shape, dtype, Conv2dPass::grad_weight, DeviceKind::cuda),
                    "conv2d_pool");
  if (few_channels_conv2d_pool_grad_weight(exec, shape, dtype, x, dy, winner, to.dw, to.accumulate,
                                           static_cast<float*>(workspace.data)))
    return;
  const PooledConvolution g(shape);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    plain_pool_grad_weight<<<static_cast<unsigned>(shape.w_elements()), kThreads, 0, stream_of(exec)>>>(
        static_cast<const T*>(x), static_cast<const T*>(dy), winner, to.dw, to.accumulate, g);
    check_launch("plain_pool_grad_weight");
  });
}

}  // namespace bantam::kernels::cuda
