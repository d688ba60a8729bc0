// Convolution with pooling: which kernels do both, and scratch memory.
#include "bantam/kernels/conv/conv2d_pool.h"

#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/conv/few_channels_parts.h"

namespace bantam::kernels {

Pool2dShape pool_of_conv2d(const Conv2dShape& s) {
  return {.batch = s.batch,
          .in_h = s.out_h(),
          .in_w = s.out_w(),
          .channels = s.out_channels,
          .window_h = 2,
          .window_w = 2,
          .stride_h = 2,
          .stride_w = 2};
}

bool conv2d_pool_supports(const Conv2dShape& shape, DType dtype, DeviceKind target) {
  return target == DeviceKind::cuda && cuda::suits_few_channels_kernel(shape, dtype) && shape.out_h() >= 2 &&
         shape.out_w() >= 2;
}

/// Partial sums of dw where kernels do both; else the output, or its gradient, and the convolution's own.
std::size_t conv2d_pool_workspace_bytes(const Conv2dShape& shape, DType dtype, Conv2dPass pass, DeviceKind target) {
  if (conv2d_pool_supports(shape, dtype, target))
    return pass == Conv2dPass::grad_weight ? aligned_bytes(cuda::few_channels_grad_weight_bytes(shape)) : 0;
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  return aligned_bytes(shape.y_elements() * size) + conv2d_workspace_bytes(shape, dtype, pass, target);
}

}  // namespace bantam::kernels
