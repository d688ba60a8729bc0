// Batch normalisation over all axes but the last, and the activation after it in the same pass: training (batch
// statistics), recomputation from saved statistics, and inference (running statistics).
// Source: Ioffe and Szegedy 2015. Statistics, scale and shift are float32 whatever x is.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/common/statistics_output.h"
#include "bantam/kernels/elementwise/activation.h"

namespace bantam::kernels {

/// x and y (rows, channels): an NHWC image has rows = batch·height·width.
struct BatchNormShape {
  std::int64_t rows = 0, channels = 0;
};

/// Scratch bytes for forward in training and for backward (the larger of the two); shape and target only.
std::size_t batch_norm_workspace_bytes(const BatchNormShape& shape, DType dtype, DeviceKind target);

/// Follows the normalisation x̂ = (x - mean)·inv_std with y = f(z), z = x̂·scale + shift, all in float32 with one
/// rounding at the end.
struct BatchNormAffine {
  const float* scale = nullptr;   ///< (channels), float32; null: 1
  const float* shift = nullptr;   ///< (channels), float32; null: 0
  ActivationFunction activation;  ///< f
};

/// x and its norm. Where `mean` is null, x as it is (batch_norm_add.h).
struct NormOperand {
  const void* x = nullptr;         ///< (rows, channels), of the call's `dtype`
  BatchNormAffine affine;          ///< scale, shift and activation
  const float* mean = nullptr;     ///< (channels), float32: the batch's, saved by forward
  const float* inv_std = nullptr;  ///< (channels), float32: the batch's, saved by forward

  bool normalised() const { return mean != nullptr; }
};

/// Where a norm's gradients go.
struct NormGradients {
  void* dx = nullptr;       ///< (rows, channels), of the call's `dtype`, overwritten; null: not wanted
  float* dscale = nullptr;  ///< (channels), float32; null: not wanted
  float* dshift = nullptr;  ///< (channels), float32; null: not wanted
  bool accumulate = false;  ///< dscale and dshift are added to, not overwritten
};

/// Inference normalises with these instead of the batch's own statistics.
struct RunningStatistics {
  const float* mean = nullptr;      ///< (channels), float32
  const float* variance = nullptr;  ///< (channels), float32
  float epsilon = 1e-3f;            ///< inv_std = 1/√(variance + epsilon)
};

/// y from x with the batch's own mean and (biased) variance, both of which `statistics` must want: they are saved for
/// backward. y may be null, where another kernel applies them (batch_norm_add.h). Variance by a numerically safe method
/// (two passes or Welford/Chan), not E[x²]-E[x]². y may alias x. Deterministic.
using BatchNormForwardTraining = void(const Exec&, const BatchNormShape&, DType dtype, const void* x,
                                      const BatchNormAffine&, void* y, const StatisticsOutput& statistics, Workspace);

/// y from x and a mean and inv_std (channels) that forward saved: one pass, and the bits that forward wrote. y may
/// alias x.
using BatchNormApply = void(const Exec&, const BatchNormShape&, DType dtype, const void* x, const BatchNormAffine&,
                            const float* mean, const float* inv_std, void* y);

/// z is recomputed from x, so that neither z nor y is kept: dz = dy·f'(z); dshift = Σ dz; dscale = Σ dz·x̂; dx =
/// scale·inv_std·(dz - dshift/rows - x̂·dscale/rows). `norm` is normalised; dy (rows, channels), `dtype`. dx may alias
/// dy. Deterministic.
using BatchNormBackwardTraining = void(const Exec&, const BatchNormShape&, DType dtype, const NormOperand& norm,
                                       const void* dy, const NormGradients&, Workspace);

/// y from x with the running statistics. y may alias x.
using BatchNormForwardInference = void(const Exec&, const BatchNormShape&, DType dtype, const void* x,
                                       const BatchNormAffine&, const RunningStatistics&, void* y);

/// Scratch bytes of batch_norm_backward_inference: none where dscale and dshift are not wanted.
std::size_t batch_norm_inference_workspace_bytes(const BatchNormShape& shape, const NormGradients& to,
                                                 DeviceKind target);

/// Backward of batch_norm_forward_inference, whose statistics are constants: dz = dy·f'(z); dshift = Σ dz; dscale =
/// Σ dz·x̂; dx = scale·inv_std·dz. x may be null where f is none and neither dscale nor dshift is wanted. dx may alias
/// dy. Deterministic.
using BatchNormBackwardInference = void(const Exec&, const BatchNormShape&, DType dtype, const void* x,
                                        const BatchNormAffine&, const RunningStatistics&, const void* dy,
                                        const NormGradients&, Workspace);
BANTAM_DECLARE_KERNEL(BatchNormForwardTraining, batch_norm_forward_training);
BANTAM_DECLARE_KERNEL(BatchNormApply, batch_norm_apply);
BANTAM_DECLARE_KERNEL(BatchNormBackwardTraining, batch_norm_backward_training);
BANTAM_DECLARE_KERNEL(BatchNormForwardInference, batch_norm_forward_inference);
BANTAM_DECLARE_KERNEL(BatchNormBackwardInference, batch_norm_backward_inference);

}  // namespace bantam::kernels
