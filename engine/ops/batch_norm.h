// Batch normalisation over the last axis.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/kernels/contracts/norm/batch_norm.h"

namespace bantam::ops {

/// What batch normalisation reads and moves. All float32 (channels); undefined scale and shift mean 1 and 0.
struct BatchNormTensors {
  Tensor scale, shift;
  Tensor running_mean, running_variance;  ///< what evaluation reads
  Tensor pending_mean, pending_variance;  ///< moved by training passes, not by recompute; may be undefined
};

struct BatchNormSettings {
  float epsilon = 1e-3f;
  kernels::RunningUpdate running;
  kernels::ActivationFunction activation;  ///< behind scale and shift, in the same pass
};

/// A batch norm: what it reads and moves, and how.
struct NormStage {
  BatchNormTensors tensors;
  BatchNormSettings settings;
};

/// x (…, channels). Backward keeps x and the batch's mean and deviation, never the output. In Pass::train and
/// Pass::recompute with the batch's statistics, and where the context says `defer`, with no activation, the result has
/// x's memory and the norm pending (pending_norm.h); in Pass::evaluate with the running ones (which has no gradient
/// here: recording it throws Error). Statistics that x has (batch_statistics.h) are taken as they are. Throws
/// ShapeError.
Tensor batch_norm(const Context& context, const Tensor& x, const BatchNormTensors& tensors,
                  const BatchNormSettings& settings = {});

}  // namespace bantam::ops
