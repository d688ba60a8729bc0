// Norm: a batch norm as a value: the one type by which ops, tensors' notes and gradients speak of it.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/kernels/norm/batch_norm.h"

namespace bantam {

/// y = f(scale·(x - mean)·inv_std + shift) over the last axis of x (…, C). All tensors are float32 (C); an undefined
/// scale is 1, an undefined shift 0.
struct Norm {
  Tensor scale, shift;
  Tensor running_mean, running_variance;            ///< what evaluation reads
  Tensor next_running_mean, next_running_variance;  ///< moved by Pass::train, not by recompute; may be undefined
  float epsilon = 1e-3f;
  kernels::RunningUpdate running;  ///< how the running statistics move
  ActivationFunction activation;   ///< f
  bool warms_up = false;           ///< `running` counts the step's updates (kernels::RunningUpdate::updates)
  bool frozen = false;             ///< all passes normalise with the running statistics, and none moves them
  Tensor mean, inv_std;            ///< of the batch; undefined until they are computed

  kernels::BatchNormAffine affine() const;
  /// x and this norm, as kernels read them.
  kernels::NormOperand operand(const Tensor& x) const;
  /// This norm with a batch's statistics, and without the running ones: what backward, recipes and readers hold.
  Norm of_batch(Tensor batch_mean, Tensor batch_inv_std) const;
  /// Where a kernel writes the batch's statistics and, in a pass that moves them, the next running ones,
  /// by the batch's share of the step.
  kernels::StatisticsOutput statistics_output(const Context& context, const Tensor& batch_mean,
                                              const Tensor& batch_inv_std) const;
  /// The running mean and variance as kernels read them in evaluation, and in every pass of a frozen norm.
  kernels::RunningStatistics running_statistics() const;
};

/// A batch norm bound to its parameters and buffers: the Norm changes from step to step.
class NormSource {
 public:
  virtual ~NormSource() = default;
  virtual Norm norm() const = 0;
};

}  // namespace bantam
