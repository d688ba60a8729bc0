// A pointwise convolution after a batch norm with relu or relu6, which the GEMMs apply as they read: forward, with the
// batch statistics of its output, and both gradients. The convolution's input is never written to memory.
#pragma once

#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/common/statistics_output.h"
#include "bantam/kernels/norm/batch_norm_add.h"

namespace bantam::kernels {

/// y (rows, out) = x (rows, in) · wᵀ, w (out, in).
struct PointwiseShape {
  std::int64_t rows = 0, in = 0, out = 0;
};

/// Whether a norm should be deferred to the GEMMs that read it: float16 or bfloat16, channels in eights, relu or relu6,
/// and sizes at which the GEMMs are bound by bytes.
bool pointwise_norm_supports(const PointwiseShape& shape, DType dtype, ActivationFunction activation);

/// Scratch bytes of forward and backward (the larger of the two); shape, dtype and target only.
std::size_t pointwise_norm_workspace_bytes(const PointwiseShape& shape, DType dtype, DeviceKind target);

/// y (rows, out) = a·wᵀ, a = f(x̂·scale + shift) rounded to `dtype`, x (rows, in), w (out, in); and y's statistics, as
/// safe as batch_norm_forward_training's, unless `statistics` is null or wants none. `x` has a norm and its activation;
/// x, w and y of `dtype`, addresses aligned to 16. Nothing aliases. Deterministic.
using PointwiseNormForward = void(const Exec&, const PointwiseShape& shape, DType dtype, const NormOperand& x,
                                  const void* w, void* y, const StatisticsOutput* statistics, Workspace);

/// da (rows, in) = dy·w, of a, not of x, overwritten; dw (out, in) = dyᵀ·a, float32, added to where `accumulate`. Null
/// where not wanted.
struct PointwiseGradients {
  void* da = nullptr;
  float* dw = nullptr;
  bool accumulate = false;
};

/// The gradient of y (rows, out): dy itself, or, where `totals` is not null, the gradient dz of the output of the norm
/// that reads y, from which the kernel computes dy = scale·inv_std·(dz - Σdz/rows - ŷ·Σ(dz·ŷ)/rows) as it reads.
struct NormInputGradient {
  const void* dz = nullptr;
  NormOperand y;                  ///< with the norm; its activation is not read
  const float* totals = nullptr;  ///< (2, out): Σ dz, Σ dz·ŷ
};

/// dx (rows, channels) = dy as above, written to memory: the bits that backward computes as it reads. dx may
/// alias dz. Workspace: batch_norm_workspace_bytes.
using NormInputGradientMade = void(const Exec&, const BatchNormShape& shape, DType dtype, const NormInputGradient& from,
                                   void* dx, Workspace);

/// Whether backward computes da and dw in one pass over dy, so that it should also compute the input gradient of a norm
/// after it.
bool pointwise_norm_supports_gradient(const PointwiseShape& shape, DType dtype);

/// From the gradient of y those of a and w. Partial sums in a fixed order. Nothing aliases.
using PointwiseNormBackward = void(const Exec&, const PointwiseShape& shape, DType dtype, const NormOperand& x,
                                   const void* w, const NormInputGradient& dy, const PointwiseGradients& gradients,
                                   Workspace);
BANTAM_DECLARE_KERNEL(NormInputGradientMade, norm_input_gradient);
BANTAM_DECLARE_KERNEL(PointwiseNormForward, pointwise_norm_forward);
BANTAM_DECLARE_KERNEL(PointwiseNormBackward, pointwise_norm_backward);

}  // namespace bantam::kernels
