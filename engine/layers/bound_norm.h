// A batch norm bound to its parameters and buffers: for its layer, and for fusions with it.
#pragma once

#include "bantam/engine/autograd/norm.h"
#include "bantam/engine/autograd/parameters.h"
#include "bantam/engine/layers/layers.h"

namespace bantam {

/// Returns the activation that the norm's kernel applies in the same pass as the norm.
inline ActivationFunction activation_of(const BatchNormOptions& options) {
  return {options.activation.kind, options.activation.slope};
}

class BoundNorm : public NormSource {
 public:
  /// `scale`, `shift`: null where the norm has none.
  BoundNorm(const BatchNormOptions& options, Parameter* scale, Parameter* shift, const Buffer& mean,
            const Buffer& variance, BufferArena& buffers)
      : scale_(scale),
        shift_(shift),
        mean_(mean),
        variance_(variance),
        buffers_(buffers),
        epsilon_(options.epsilon),
        running_{.rate = options.running_rate(), .unbiased = options.unbiased},
        warms_up_(!options.rate),
        activation_(activation_of(options)),
        frozen_(options.frozen) {}

  Norm norm() const override {
    return {.scale = scale_ != nullptr ? scale_->value() : Tensor(),
            .shift = shift_ != nullptr ? shift_->value() : Tensor(),
            .running_mean = buffers_.current(mean_),
            .running_variance = buffers_.current(variance_),
            .next_running_mean = buffers_.next(mean_),
            .next_running_variance = buffers_.next(variance_),
            .epsilon = epsilon_,
            .running = running_,
            .activation = activation_,
            .warms_up = warms_up_ && !buffers_.settled(),
            .frozen = frozen_};
  }

 private:
  Parameter* scale_;
  Parameter* shift_;
  const Buffer& mean_;
  const Buffer& variance_;
  BufferArena& buffers_;
  float epsilon_;
  kernels::RunningUpdate running_;
  bool warms_up_;
  ActivationFunction activation_;
  bool frozen_;
};

}  // namespace bantam
