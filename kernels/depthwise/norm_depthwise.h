// A 3x3 depthwise convolution between two batch norms with relu or relu6: the first is applied as the convolution
// reads, the second's statistics come of what it writes, and backward makes the gradients between them as it goes.
#pragma once

#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/common/statistics_output.h"
#include "bantam/kernels/depthwise/depthwise_conv2d.h"
#include "bantam/kernels/norm/batch_norm_add.h"

namespace bantam::kernels {

/// Whether the kernels support it: 3x3, no dilation, one filter a channel, a stride of 1 or 2, channels in eights, and
/// relu or relu6 on both sides.
bool norm_depthwise_supports(const DepthwiseConv2dShape& shape, ActivationFunction before, ActivationFunction after);

/// Scratch bytes of forward and backward (the larger of the two); shape, dtype and target only.
std::size_t norm_depthwise_workspace_bytes(const DepthwiseConv2dShape& shape, DType dtype, DeviceKind target);

/// y = depthwise convolution of a with w, a = f(x̂·scale + shift) rounded to `dtype` and zero in the padding; and y's
/// statistics. `x` has a norm and its activation; x and y of `dtype`, addresses aligned to 16. Deterministic.
using NormDepthwiseForward = void(const Exec&, const DepthwiseConv2dShape& shape, DType dtype, const NormOperand& x,
                                  const void* w, void* y, const StatisticsOutput& statistics, Workspace);

/// The operands that backward reads; x, w, y and dy of the call's `dtype`, addresses aligned to 16.
struct NormDepthwiseInputs {
  NormOperand x;            ///< (batch, in_h, in_w, channels) with the first norm and its activation
  const void* w = nullptr;  ///< (3, 3, channels)
  NormOperand y;  ///< (batch, out_h, out_w, channels): forward's output with the second norm and its activation
  const void* dy = nullptr;  ///< like y.x: the gradient after the second norm and its activation
};

/// Gradients of a norm's scale and shift.
struct VectorGradients {
  float* dscale = nullptr;  ///< (channels), float32; null: not wanted
  float* dshift = nullptr;  ///< (channels), float32; null: not wanted
  bool accumulate = false;  ///< both are added to, not overwritten
};
/// The gradients that backward writes.
struct NormDepthwiseGradients {
  void* dx = nullptr;       ///< like x.x, of the call's `dtype`, overwritten; aliases nothing
  float* dw = nullptr;      ///< (3, 3, channels), float32; null: not wanted
  bool accumulate = false;  ///< dw is added to, not overwritten
  VectorGradients before;   ///< of the first norm
  VectorGradients after;    ///< of the second norm
  /// (2, channels), float32, or null. Not null: dx gets dz, the gradient before the first norm's activation, and this
  /// its sums Σ dz and Σ dz·x̂, for whoever computes the gradient of x from them as it reads.
  float* totals = nullptr;
};

/// From dy the gradients of x (before the first norm), of w and of both norms' scale and shift. Partial sums in a fixed
/// order.
using NormDepthwiseBackward = void(const Exec&, const DepthwiseConv2dShape& shape, DType dtype,
                                   const NormDepthwiseInputs& inputs, const NormDepthwiseGradients& gradients,
                                   Workspace);
BANTAM_DECLARE_KERNEL(NormDepthwiseForward, norm_depthwise_forward);
BANTAM_DECLARE_KERNEL(NormDepthwiseBackward, norm_depthwise_backward);

}  // namespace bantam::kernels
