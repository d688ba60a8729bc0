// A batch norm with its activation and squeeze-and-excitation after it, as passes over the norm's input x alone: each
// recomputes the norm's output a = f(z), rounded to x's type, as it reads, so that a is never written.
//
// y = a·factor. Backward, da = dy·factor + offset, where `offset` is the gradient that comes through the mean
// (squeeze_excite.h). Both are constants of a sample and channel, so that the norm's sums over dz = f'(z)·da follow
// from five sums over each sample's positions, which one pass computes before `offset` is known.
#pragma once

#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/join/channel_scale.h"
#include "bantam/kernels/norm/batch_norm.h"

namespace bantam::kernels {

/// Whether the kernels support it: channels in eights; silu, hard_swish or a piecewise linear activation.
bool norm_gate_supports(std::int64_t channels, ActivationFunction f);

/// Sums a sample and channel: Σ dy·a, Σ f'·dy, Σ f'·dy·(x - mean), Σ f', Σ f'·(x - mean).
inline constexpr int kNormGateSums = 5;

/// Scratch bytes of every kernel below (the largest); shape and target only.
std::size_t norm_gate_workspace_bytes(const ChannelScaleShape& shape, DeviceKind target);

/// mean[n, c] = Σ_p a / positions, float32. Here and below `x` (samples, positions, channels) of the shape's `dtype`
/// is normalised, addresses are aligned to 16, the shape's factors are float32, and partial sums are added in a fixed
/// order.
using NormGateMean = void(const Exec&, const ChannelScaleShape& shape, const NormOperand& x, float* mean, Workspace);

/// y = a·factor, like x; factor (samples, channels). y may alias x.
using NormGateApply = void(const Exec&, const ChannelScaleShape& shape, const NormOperand& x, const float* factor,
                           void* y, Workspace);

/// sums (5, samples, channels), float32, as kNormGateSums lists them; the first is the gradient of `factor`.
using NormGateGradSums = void(const Exec&, const ChannelScaleShape& shape, const NormOperand& x, const void* dy,
                              float* sums, Workspace);

/// The tensors that the norm's gradient reads.
struct NormGateInputs {
  NormOperand x;
  const void* dy = nullptr;                          ///< of y
  const float *factor = nullptr, *offset = nullptr;  ///< (samples, channels)
  const float* sums = nullptr;                       ///< of norm_gate_grad_sums
};
/// dz = f'(z)·(dy·factor + offset), not rounded; then what batch_norm_backward_training computes from it. dx may alias
/// dy.
using NormGateGrad = void(const Exec&, const ChannelScaleShape& shape, const NormGateInputs& inputs,
                          const NormGradients& to, Workspace);

BANTAM_DECLARE_KERNEL(NormGateMean, norm_gate_mean);
BANTAM_DECLARE_KERNEL(NormGateApply, norm_gate_apply);
BANTAM_DECLARE_KERNEL(NormGateGradSums, norm_gate_grad_sums);
BANTAM_DECLARE_KERNEL(NormGateGrad, norm_gate_grad);

}  // namespace bantam::kernels
