// Sizes of convolutions: workspace by backend, and operations.
#include "bantam/kernels/conv/conv2d.h"

#include <fmt/core.h>

#include "bantam/kernels/conv/conv2d_path.h"
#include "bantam/kernels/conv/conv2d_pointwise.h"
#include "bantam/kernels/conv/workspace_rules.h"

namespace bantam::kernels {

std::size_t conv2d_workspace_bytes(const Conv2dShape& shape, DType dtype, Conv2dPass pass, DeviceKind target) {
  check_conv2d_type(dtype);
  if (is_pointwise(shape)) {
    const DType out = pass == Conv2dPass::grad_weight ? DType::float32 : dtype;
    return matmul_workspace_bytes(pointwise_matmul(shape, pass), dtype, out, target);
  }
  if (shape.y_elements() == 0 || shape.x_elements() == 0) return 0;
  if (target == DeviceKind::cuda) return cuda::conv2d_workspace_rule(shape, dtype, pass).total();
  return cpu::conv2d_workspace_rule(shape, dtype, pass);
}

void check_conv2d_type(DType dtype) {
  if (dtype == DType::float32 || is_half(dtype)) return;
  throw DTypeError(fmt::format("conv2d: tensors are {}; expected float32, float16 or bfloat16", to_string(dtype)));
}

std::int64_t conv2d_flops(const Conv2dShape& s) {
  return 2 * s.y_elements() * s.kernel_h * s.kernel_w * (s.in_channels / s.groups);
}

}  // namespace bantam::kernels
