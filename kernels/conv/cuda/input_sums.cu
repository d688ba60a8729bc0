// Sums of input gradients by channel, from weights and weight gradients: a block a channel.
#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/common/cuda/numeric.cuh"
#include "bantam/kernels/conv/conv2d.h"

namespace bantam::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;

/// Each thread's terms in order, then the threads in a fixed tree.
template <class T>
__global__ void __launch_bounds__(kThreads) input_sums(const T* __restrict__ w, const float* __restrict__ dw,
                                                       float* __restrict__ sums, std::int64_t rows, bool accumulate) {
  __shared__ float parts[kThreads];
  const std::int64_t channels = gridDim.x, c = blockIdx.x;
  float sum = 0.0f;
  for (std::int64_t row = threadIdx.x; row < rows; row += kThreads)
    sum = fmaf(to_float(w[row * channels + c]), dw[row * channels + c], sum);
  parts[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[c] = accumulate ? sums[c] + parts[0] : parts[0];
}

}  // namespace

void conv2d_input_sums(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* w, const float* dw,
                       float* sums, bool accumulate) {
  if (shape.in_channels <= 0) return;
  const std::int64_t rows = shape.w_elements() / shape.in_channels;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    input_sums<<<static_cast<unsigned>(shape.in_channels), kThreads, 0, stream_of(exec)>>>(static_cast<const T*>(w), dw,
                                                                                           sums, rows, accumulate);
    check_launch("input_sums");
  });
}

}  // namespace bantam::kernels::cuda
