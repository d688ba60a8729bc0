// A batch norm bound to its parameters and buffers: what its layer runs, and the fused ops that take it along.
#pragma once

#include "bantam/engine/autograd/parameters.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/ops/batch_norm.h"

namespace bantam {

/// What follows the norm in the same pass.
inline kernels::ActivationFunction activation_of(const BatchNormOptions& options) {
  return {options.activation.kind, options.activation.slope};
}

class BoundNorm {
 public:
  /// `scale`, `shift`: null where the norm has none.
  BoundNorm(const BatchNormOptions& options, Parameter* scale, Parameter* shift, const Buffer& mean,
            const Buffer& variance, BufferArena& buffers)
      : scale_(scale),
        shift_(shift),
        mean_(mean),
        variance_(variance),
        buffers_(buffers),
        settings_{.epsilon = options.epsilon,
                  .running = {options.rate, options.unbiased},
                  .activation = activation_of(options)} {}

  ops::NormStage stage() const {
    return {.tensors = {.scale = scale_ != nullptr ? scale_->value() : Tensor(),
                        .shift = shift_ != nullptr ? shift_->value() : Tensor(),
                        .running_mean = buffers_.current(mean_),
                        .running_variance = buffers_.current(variance_),
                        .pending_mean = buffers_.pending(mean_),
                        .pending_variance = buffers_.pending(variance_)},
            .settings = settings_};
  }

 private:
  Parameter* scale_;
  Parameter* shift_;
  const Buffer& mean_;
  const Buffer& variance_;
  BufferArena& buffers_;
  ops::BatchNormSettings settings_;
};

}  // namespace bantam
