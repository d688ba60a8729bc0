// Max pooling of a batch norm's output, which is never written: the norm and its activation are applied as the windows
// read. For the CPU alone: on an H200 the two layers' own kernels are faster (resnet50's stem, 1.14 ms against 1.37).
#pragma once

#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/elementwise/piecewise.h"
#include "bantam/kernels/norm/batch_norm.h"
#include "bantam/kernels/pool/pool2d.h"

namespace bantam::kernels {

/// Whether the kernels can and should run it: positions of a window are neighbours; and a value that several windows
/// hold is normalised for each, which is worth it only where f is cheap.
inline bool norm_pool_supports(const Pool2dShape& shape, ActivationFunction f) {
  if (shape.dilation_h != 1 || shape.dilation_w != 1) return false;
  return is_piecewise(f.kind) || (shape.window_h <= shape.stride_h && shape.window_w <= shape.stride_w);
}

/// The norm's shape.
inline BatchNormShape norm_of_pool(const Pool2dShape& shape) {
  return {shape.batch * shape.in_h * shape.in_w, shape.channels};
}

/// y and `winner` of max_pool2d_forward over a = f(x̂·scale + shift), rounded to `dtype` as batch_norm_apply writes it:
/// the same bits. `x` is normalised, (batch, in_h, in_w, channels); `winner` may be null. Workspace:
/// batch_norm_workspace_bytes of the norm.
using NormPoolForward = void(const Exec&, const Pool2dShape& shape, DType dtype, const NormOperand& x, void* y,
                             std::uint16_t* winner, Workspace);

/// From dy (batch, out_h, out_w, channels) and `winner` the gradients of x, scale and shift: the bits that
/// max_pool2d_grad_input and batch_norm_backward_training write one after another. to.dx must not be null (it may hold
/// what lies between) and aliases nothing. Deterministic. Workspace: as forward.
using NormPoolBackward = void(const Exec&, const Pool2dShape& shape, DType dtype, const NormOperand& x, const void* dy,
                              const std::uint16_t* winner, const NormGradients& to, Workspace);
BANTAM_DECLARE_CPU_KERNEL(NormPoolForward, norm_pool_forward);
BANTAM_DECLARE_CPU_KERNEL(NormPoolBackward, norm_pool_backward);

}  // namespace bantam::kernels
