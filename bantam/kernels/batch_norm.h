// Batch normalisation over all axes but the last: training (batch statistics) and inference (running statistics).
// Source: Ioffe and Szegedy 2015. Statistics, scale and shift are float32 whatever x is.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/exec.h"

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
std::int64_t batch_norm_flops(const BatchNormShape& shape);
/// Bytes of forward in training: x read twice, y written.
std::int64_t batch_norm_bytes(const BatchNormShape& shape, DType dtype);

/// y = (x - mean)·inv_std·scale + shift with the batch's own mean and (biased) variance, inv_std = 1/√(variance +
/// epsilon). Saves mean and inv_std (channels) for backward. `scale`, `shift` may be null (1, 0). `running_mean`,
/// `running_variance` are updated in place unless null. Variance by a numerically safe method (two passes or
/// Welford/Chan), not E[x²]-E[x]². y may alias x. Deterministic.
using BatchNormForwardTraining = void(const Exec&, const BatchNormShape&, DType dtype, const void* x,
                                      const float* scale, const float* shift, float epsilon, RunningUpdate,
                                      float* running_mean, float* running_variance, void* y, float* saved_mean,
                                      float* saved_inv_std, Workspace);

/// x̂ = (x - mean)·inv_std; dshift = Σ dy; dscale = Σ dy·x̂; dx = scale·inv_std·(dy - dshift/rows - x̂·dscale/rows).
/// dscale, dshift: float32; null where not wanted; added to where `accumulate`. dx may alias dy, or be null.
/// Deterministic.
using BatchNormBackwardTraining = void(const Exec&, const BatchNormShape&, DType dtype, const void* x, const void* dy,
                                       const float* scale, const float* saved_mean, const float* saved_inv_std,
                                       void* dx, float* dscale, float* dshift, bool accumulate, Workspace);

/// y = (x - running_mean)/√(running_variance + epsilon)·scale + shift. y may alias x.
using BatchNormForwardInference = void(const Exec&, const BatchNormShape&, DType dtype, const void* x,
                                       const float* scale, const float* shift, float epsilon, const float* running_mean,
                                       const float* running_variance, void* y);
namespace cpu {
BatchNormForwardTraining batch_norm_forward_training;
BatchNormBackwardTraining batch_norm_backward_training;
BatchNormForwardInference batch_norm_forward_inference;
}  // namespace cpu
namespace cuda {
BatchNormForwardTraining batch_norm_forward_training;
BatchNormBackwardTraining batch_norm_backward_training;
BatchNormForwardInference batch_norm_forward_inference;
}  // namespace cuda

}  // namespace bantam::kernels
