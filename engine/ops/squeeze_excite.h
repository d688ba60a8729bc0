// Squeeze-and-excitation's gate between the passes over the image: for its op, and for the fusion with the norm before.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/gradient_target.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/join/squeeze_excite.h"

namespace bantam::ops {

/// Throws where the weights do not fit x.
void check_squeeze_excite(const Context& context, const Tensor& x, const SqueezeExciteTensors& weights);

/// One call of squeeze_excite: its shapes, weights and what its kernels compute between the passes over x.
struct SqueezeExciteCall {
  kernels::ChannelScaleShape image;  ///< with float32 factors
  kernels::SqueezeExciteShape gate;
  SqueezeExciteTensors weights;
  Tensor mean, reduced, hidden, expanded, factor;  ///< float32

  SqueezeExciteCall(const Context& context, const Tensor& x, const SqueezeExciteTensors& tensors,
                    ActivationFunction activation, Activation gate_function);
  /// The factors, once the means are there.
  void forward(const Context& context) const;
  /// Gradients of the weights, to the store; returns what dx of each position gets.
  Tensor backward(const Context& context, const float* dfactor, GradientStore& store) const;
};

/// Whether a gradient of x or of a weight is wanted.
bool records_squeeze_excite(const Context& context, const Tensor& x, const SqueezeExciteTensors& weights);

}  // namespace bantam::ops
