// Batch normalisation over all axes but the last, and the activation behind it in the same pass: training (batch
// statistics), again from kept statistics, and inference (running statistics).
// Source: Ioffe and Szegedy 2015. Statistics, scale and shift are float32 whatever x is.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/contracts/elementwise/activation.h"
#include "bantam/kernels/contracts/exec.h"

namespace bantam::kernels {

/// x and y (rows, channels): an NHWC image has rows = batch·height·width.
struct BatchNormShape {
  std::int64_t rows = 0, channels = 0;
};

/// How running statistics move: running = (1 - rate)·running + rate·batch. Keras' momentum 0.99 is rate 0.01; PyTorch's
/// momentum 0.1 is rate 0.1. `unbiased`: the variance that enters is divided by rows - 1 (PyTorch; Keras' fused kernel
/// too).
struct RunningUpdate {
  float rate = 0.01f;
  bool unbiased = true;
};

/// Scratch bytes for forward in training and for backward (the larger of the two); shape and target only.
std::size_t batch_norm_workspace_bytes(const BatchNormShape& shape, DType dtype, DeviceKind target);

/// What follows the normalisation x̂ = (x - mean)·inv_std: y = f(z), z = x̂·scale + shift, all in float32 with one
/// rounding at the end.
struct BatchNormAffine {
  const float* scale = nullptr;  ///< (channels); null: 1
  const float* shift = nullptr;  ///< (channels); null: 0
  ActivationFunction activation;
};

/// y from x with the batch's own mean and (biased) variance, inv_std = 1/√(variance + epsilon). Saves mean and inv_std
/// (channels) for backward. `running_mean`, `running_variance` are updated in place unless null; y may be null, where
/// another kernel applies them (batch_norm_add.h). Variance by a numerically safe method (two passes or Welford/Chan),
/// not E[x²]-E[x]². y may alias x. Deterministic.
using BatchNormForwardTraining = void(const Exec&, const BatchNormShape&, DType dtype, const void* x,
                                      const BatchNormAffine&, float epsilon, RunningUpdate, float* running_mean,
                                      float* running_variance, void* y, float* saved_mean, float* saved_inv_std,
                                      Workspace);

/// y from x and a mean and inv_std (channels) that forward saved: one pass, and the bits that forward wrote. y may
/// alias x.
using BatchNormApply = void(const Exec&, const BatchNormShape&, DType dtype, const void* x, const BatchNormAffine&,
                            const float* mean, const float* inv_std, void* y);

/// z is made again from x, so that neither z nor y is kept: dz = dy·f'(z); dshift = Σ dz; dscale = Σ dz·x̂; dx =
/// scale·inv_std·(dz - dshift/rows - x̂·dscale/rows). dscale, dshift: float32; null where not wanted; added to where
/// `accumulate`. dx may alias dy, or be null. Deterministic.
using BatchNormBackwardTraining = void(const Exec&, const BatchNormShape&, DType dtype, const void* x, const void* dy,
                                       const BatchNormAffine&, const float* saved_mean, const float* saved_inv_std,
                                       void* dx, float* dscale, float* dshift, bool accumulate, Workspace);

/// y from x with mean = running_mean and inv_std = 1/√(running_variance + epsilon). y may alias x.
using BatchNormForwardInference = void(const Exec&, const BatchNormShape&, DType dtype, const void* x,
                                       const BatchNormAffine&, float epsilon, const float* running_mean,
                                       const float* running_variance, void* y);
namespace cpu {
BatchNormForwardTraining batch_norm_forward_training;
BatchNormApply batch_norm_apply;
BatchNormBackwardTraining batch_norm_backward_training;
BatchNormForwardInference batch_norm_forward_inference;
}  // namespace cpu
namespace cuda {
BatchNormForwardTraining batch_norm_forward_training;
BatchNormApply batch_norm_apply;
BatchNormBackwardTraining batch_norm_backward_training;
BatchNormForwardInference batch_norm_forward_inference;
}  // namespace cuda

}  // namespace bantam::kernels
