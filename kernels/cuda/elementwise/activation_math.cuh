// Activations and their derivatives on the device, for kernels that apply them to what they compute.
#pragma once

#include "bantam/kernels/contracts/elementwise/piecewise.h"

namespace bantam::kernels::cuda {

__device__ inline float logistic(float x) { return 1.0f / (1.0f + expf(-x)); }

/// d/dx x·Φ(x) = Φ(x) + x·φ(x).
__device__ inline float gelu_slope(float x) { return normcdff(x) + x * 0.398942280f * expf(-0.5f * x * x); }

/// d/dx x·s(x) = s·(1 + x·(1 - s)), s the sigmoid.
__device__ inline float silu_slope(float x) {
  const float s = logistic(x);
  return s * (1.0f + x * (1.0f - s));
}

/// A smooth activation: gelu, silu, sigmoid, tanh. The branch is the same for all threads.
struct Smooth {
  Activation kind;

  __device__ float operator()(float x) const {
    switch (kind) {
      case Activation::gelu:
        return x * normcdff(x);
      case Activation::silu:
        return x * logistic(x);
      case Activation::sigmoid:
        return logistic(x);
      default:
        return tanhf(x);
    }
  }
  __device__ float derivative(float x) const {
    switch (kind) {
      case Activation::gelu:
        return gelu_slope(x);
      case Activation::silu:
        return silu_slope(x);
      case Activation::sigmoid: {
        const float s = logistic(x);
        return s * (1.0f - s);
      }
      default: {
        const float t = tanhf(x);
        return 1.0f - t * t;
      }
    }
  }
};

/// Calls call(f) with what computes `f` on the device: two instances of the caller's kernel. (One with every function
/// would need the registers of the most costly.)
template <class Call>
void with_activation(ActivationFunction f, Call&& call) {
  if (is_piecewise(f.kind)) return call(PiecewiseLinear::of(f));
  call(Smooth{f.kind});
}

}  // namespace bantam::kernels::cuda
