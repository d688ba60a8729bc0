// Workspace of convolutions for inference, by backend.
#include "bantam/kernels/conv/conv2d_inference.h"

#include "bantam/kernels/conv/conv2d_pointwise.h"
#include "bantam/kernels/conv/few_channels_parts.h"
#include "bantam/kernels/conv/image_parts.h"
#include "bantam/kernels/conv/packed_plan.h"

namespace bantam::kernels {

std::size_t conv2d_inference_workspace_bytes(const Conv2dShape& shape, DType dtype, DeviceKind target) {
  if (target == DeviceKind::cpu && cpu::packs_weights(shape, dtype))
    return cpu::plan_packed(cpu::forward_window(shape)).workspace_bytes();
  return conv2d_workspace_bytes(shape, dtype, Conv2dPass::forward, target);
}

bool conv2d_applies_epilogue(const Conv2dShape& shape, DType dtype, DeviceKind target) {
  return target == DeviceKind::cuda && !is_pointwise(shape) && cuda::is_image_convolution(shape, dtype);
}

bool conv2d_fuses_relu(const Conv2dShape& shape, DType dtype, DeviceKind target) {
  if (target != DeviceKind::cuda || !is_half(dtype) || is_pointwise(shape)) return false;
  if (cuda::is_image_convolution(shape, dtype)) return true;
  return shape.groups == 1 && shape.in_channels % 8 == 0 && shape.out_channels % 8 == 0 &&
         !cuda::suits_few_channels_kernel(shape, dtype);
}

std::size_t conv2d_pack_workspace_bytes(const Conv2dShape& shape, DType dtype, DeviceKind target) {
  if (target != DeviceKind::cpu || !cpu::packs_weights(shape, dtype)) return 0;
  return aligned_bytes(shape.w_elements() * 4);
}

}  // namespace bantam::kernels
