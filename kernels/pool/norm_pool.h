// Max pooling of a batch norm's output, which is never written: the norm and its activation are applied as the windows
// read. On CUDA for the stem of a ResNet alone.
#pragma once

#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/elementwise/piecewise.h"
#include "bantam/kernels/norm/batch_norm.h"
#include "bantam/kernels/pool/pool2d.h"

namespace bantam::kernels {

/// Whether the kernels can and should run it. On CUDA: half types, ReLU, 3x3 windows (is_three), channels in eights, as
/// the stem of a ResNet has; else the two kernels of their own are as fast. On the CPU: positions of a window are
/// neighbours; and a value that several windows hold is normalised for each, which is worth it only where f is cheap.
inline bool norm_pool_supports(const Pool2dShape& shape, ActivationFunction f, DType dtype, DeviceKind target) {
  if (target == DeviceKind::cuda)
    return is_half(dtype) && f.kind == Activation::relu && is_three(shape) && shape.channels % 8 == 0 &&
           shape.x_elements() < std::int64_t{1} << 34;  // places of eight channels have 31 bits
  if (shape.dilation_h != 1 || shape.dilation_w != 1) return false;
  return is_piecewise(f.kind) || (shape.window_h <= shape.stride_h && shape.window_w <= shape.stride_w);
}

/// Bytes of the place that the kernels keep for each value of y: uint16 on the CPU, uint8 on CUDA.
constexpr std::int64_t norm_pool_winner_bytes(DeviceKind target) { return target == DeviceKind::cuda ? 1 : 2; }

/// The norm's shape.
inline BatchNormShape norm_of_pool(const Pool2dShape& shape) {
  return {shape.batch * shape.in_h * shape.in_w, shape.channels};
}

/// y and `winner` of max_pool2d_forward over a = f(x̂·scale + shift), rounded to `dtype` as batch_norm_apply writes it:
/// the same bits (on CUDA 0 for -0). `x` is normalised, (batch, in_h, in_w, channels); `winner`, of
/// norm_pool_winner_bytes a value of y, may be null. On CUDA throws ShapeError where norm_pool_supports is false.
/// Asynchronous there. Workspace: batch_norm_workspace_bytes of the norm.
using NormPoolForward = void(const Exec&, const Pool2dShape& shape, DType dtype, const NormOperand& x, void* y,
                             void* winner, Workspace);

/// From dy (batch, out_h, out_w, channels) and `winner` the gradients of x, scale and shift that max_pool2d_grad_input
/// and batch_norm_backward_training write one after another: on the CPU the same bits, on CUDA sums in another order.
/// to.dx must not be null (it may hold what lies between) and aliases nothing. Deterministic. Workspace: as forward.
using NormPoolBackward = void(const Exec&, const Pool2dShape& shape, DType dtype, const NormOperand& x, const void* dy,
                              const void* winner, const NormGradients& to, Workspace);
BANTAM_DECLARE_KERNEL(NormPoolForward, norm_pool_forward);
BANTAM_DECLARE_KERNEL(NormPoolBackward, norm_pool_backward);

}  // namespace bantam::kernels
