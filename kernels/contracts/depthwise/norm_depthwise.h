// A 3x3 depthwise convolution between two batch norms with relu or relu6: the first is applied as the convolution
// reads, the second's statistics come of what it writes, and backward makes the gradients between them as it goes.
#pragma once

#include "bantam/kernels/contracts/depthwise/depthwise_conv2d.h"
#include "bantam/kernels/contracts/norm/batch_norm_add.h"
#include "bantam/kernels/contracts/norm/statistics_output.h"

namespace bantam::kernels {

/// Whether the kernels take it: 3x3, no dilation, one filter a channel, a stride of 1 or 2, channels in eights, and
/// relu or relu6 on both sides.
bool norm_depthwise_takes(const DepthwiseConv2dShape& shape, ActivationFunction before, ActivationFunction after);

/// Scratch bytes of forward and backward (the larger of the two); shape, dtype and target only.
std::size_t norm_depthwise_workspace_bytes(const DepthwiseConv2dShape& shape, DType dtype, DeviceKind target);

/// y = depthwise convolution of a with w, a = f(x̂·scale + shift) rounded to `dtype` and zero in the padding; and y's
/// statistics. `x` has a norm and its activation; x and y of `dtype`, addresses aligned to 16. Deterministic.
using NormDepthwiseForward = void(const Exec&, const DepthwiseConv2dShape& shape, DType dtype, const NormOperand& x,
                                  const void* w, void* y, const StatisticsOutput& statistics, Workspace);

/// Float32 gradients of scale and shift (channels); null where not wanted; added to where `accumulate`.
struct VectorGradients {
  float* dscale = nullptr;
  float* dshift = nullptr;
  bool accumulate = false;
};
/// Of the weights (3, 3, channels), float32, null where not wanted, and of both norms.
struct NormDepthwiseGradients {
  float* dw = nullptr;
  bool accumulate = false;
  VectorGradients before, after;
  /// (2, channels), or null. Not null: dx gets dz, the gradient in front of the first norm's activation, and this its
  /// sums Σ dz and Σ dz·x̂, for whoever makes the gradient of x of them as it reads.
  float* totals = nullptr;
};

/// From dy, the gradient behind the second norm and its activation, the gradients of x (before the first norm), of w
/// and of both norms' scale and shift. `y`: forward's output with the second norm. dx is overwritten; it aliases
/// nothing. Partial sums in a fixed order.
using NormDepthwiseBackward = void(const Exec&, const DepthwiseConv2dShape& shape, DType dtype, const NormOperand& x,
                                   const void* w, const NormOperand& y, const void* dy, void* dx,
                                   const NormDepthwiseGradients& gradients, Workspace);
namespace cpu {
NormDepthwiseForward norm_depthwise_forward;
NormDepthwiseBackward norm_depthwise_backward;
}  // namespace cpu
namespace cuda {
NormDepthwiseForward norm_depthwise_forward;
NormDepthwiseBackward norm_depthwise_backward;
}  // namespace cuda

}  // namespace bantam::kernels
