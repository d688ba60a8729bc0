// Backward of a separable block: partial gradients of bands and runs of images by one kernel (tiles, or moments for few
// input channels), and their sum in a fixed order by another.
#include "bantam/kernels/cuda/early_launch.cuh"
#include "bantam/kernels/cuda/fused/separable_backward.cuh"
#include "bantam/kernels/separable_block.h"
#include "bantam/kernels/workspace_layout.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kSumRows = 32;  // parts under way at a time

/// Where the sums go: three arrays, which lie one after the other in a part; null where nobody wants them.
struct GradientSums {
  float* to[3];  // pointwise, depthwise, bias
  int end[3];    // in a part
  bool accumulate[3];
};

/// A block sums 32 elements: a row of threads every kSumRows-th part, then a warp an element, in a tree.
__global__ void __launch_bounds__(32 * kSumRows)
    sum_gradient_parts_kernel(const float* partials, int parts, const GradientSums sums) {
  wait_for_kernel_before();
  __shared__ float rows[kSumRows][33];
  const int count = sums.end[2], i = static_cast<int>(blockIdx.x) * 32 + static_cast<int>(threadIdx.x);
  float sum = 0;
  if (i < count) {
#pragma unroll 8
    for (int part = static_cast<int>(threadIdx.y); part < parts; part += kSumRows) {
      sum += partials[static_cast<std::int64_t>(part) * count + i];
    }
  }
  rows[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  sum = rows[threadIdx.x][threadIdx.y];
  for (int apart = kSumRows / 2; apart > 0; apart /= 2) sum += __shfl_down_sync(0xffffffffu, sum, apart);
  const int element = static_cast<int>(blockIdx.x) * 32 + static_cast<int>(threadIdx.y);
  if (threadIdx.x != 0 || element >= count) return;
  const int which = element < sums.end[0] ? 0 : element < sums.end[1] ? 1 : 2;
  if (sums.to[which] == nullptr) return;
  float* to = sums.to[which] + element - (which == 0 ? 0 : sums.end[which - 1]);
  *to = sums.accumulate[which] ? *to + sum : sum;
}

void require_aligned(const void* address, std::uintptr_t to, const char* name) {
  if (reinterpret_cast<std::uintptr_t>(address) % to == 0) return;
  throw Error(std::string("separable_block_backward: ") + name + " must be aligned to " + std::to_string(to) +
              " bytes");
}

}  // namespace

void separable_block_backward(const Exec& exec, const SeparableBlockShape& s, DType dtype, const void* x,
                              const void* w_depthwise, const void* w_pointwise, const void* dy,
                              const std::uint8_t* codes, void* dx, float* d_depthwise, float* d_pointwise,
                              float* d_bias, std::array<bool, 3> accumulate, Workspace workspace) {
  require_workspace(workspace, separable_backward_workspace_bytes(s, dtype), "separable_block_backward");
  for (const void* address : {x, dy, static_cast<const void*>(dx)}) require_aligned(address, 16, "x, dy and dx");
  require_aligned(w_depthwise, 8, "w_depthwise");
  require_aligned(codes, 4, "codes");
  if (s.batch >> 31 != 0) throw ShapeError("separable_block_backward: the batch is too large for one call on CUDA");
  const SeparableOperands operands{x, w_depthwise, w_pointwise, dy, codes, dx, static_cast<float*>(workspace.data)};
  std::int64_t parts = 0;
  if (s.batch > 0 && separable_uses_moments(s)) {
    parts = separable_moments(exec, s, dtype, operands);
    if (dx != nullptr) separable_few_channels_grad_input(exec, s, dtype, operands);
  } else if (s.batch > 0) {
    parts = separable_tile_backward(exec, s, dtype, operands);
  }
  const auto pointwise = static_cast<int>(s.pointwise_elements()), depthwise = static_cast<int>(s.depthwise_elements());
  const auto count = static_cast<int>(separable_gradient_elements(s));
  const GradientSums sums{{d_pointwise, d_depthwise, d_bias},
                          {pointwise, pointwise + depthwise, count},
                          {accumulate[1], accumulate[0], accumulate[2]}};
  const dim3 grid(static_cast<unsigned>((count + 31) / 32)), threads(32, kSumRows);
  const auto* partials = static_cast<const float*>(workspace.data);
  if (parts > 0) {
    launch_early(exec, sum_gradient_parts_kernel, grid, threads, partials, static_cast<int>(parts), sums);
  } else {
    sum_gradient_parts_kernel<<<grid, threads, 0, stream_of(exec)>>>(partials, 0, sums);
  }
  check_launch("sum_gradient_parts_kernel");
}

}  // namespace bantam::kernels::cuda
