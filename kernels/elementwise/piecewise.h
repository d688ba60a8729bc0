// The activations made of straight lines (none, relu, relu6, leaky_relu) as numbers of one formula without branches,
// and their derivative as one bit.
#pragma once

#include "bantam/base/philox.h"  // BANTAM_HOST_DEVICE
#include "bantam/kernels/elementwise/activation.h"

namespace bantam::kernels {

/// Whether f' has two values only, so that backward needs one bit an element.
constexpr bool is_piecewise(Activation a) {
  return a == Activation::none || a == Activation::relu || a == Activation::relu6 || a == Activation::leaky_relu;
}

/// f(x) = below·x for x < 0, `top` above it where bounded, x between; f' is 1 where `rises`, else `below`: a corner has
/// the slope of the flatter side, as in PyTorch and TensorFlow.
struct PiecewiseLinear {
  float below = 1.0f;
  float top = 0.0f;
  bool bounded = false;

  /// Returns the linear parts of `f`, which must be a piecewise activation.
  static constexpr PiecewiseLinear of(ActivationFunction f) {
    switch (f.kind) {
      case Activation::relu:
        return {.below = 0.0f};
      case Activation::relu6:
        return {.below = 0.0f, .top = 6.0f, .bounded = true};
      case Activation::leaky_relu:
        return {.below = f.slope};
      default:
        return {};
    }
  }

  BANTAM_HOST_DEVICE float operator()(float x) const {
    const float low = below != 0.0f ? below * x : 0.0f;  // 0·x would be -0, and NaN for -∞
    return x < 0.0f ? low : bounded && x > top ? top : x;
  }
  BANTAM_HOST_DEVICE bool rises(float x) const { return x > 0.0f && !(bounded && x >= top); }
  BANTAM_HOST_DEVICE float derivative(float x) const { return rises(x) ? 1.0f : below; }
};

}  // namespace bantam::kernels
