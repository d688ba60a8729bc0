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

/// slope·(e^x - 1) below 0, `above`·x from there on.
__device__ inline float exponential_unit(float x, float slope, float above) {
  return x < 0.0f ? slope * expm1f(x) : above * x;
}
/// Its derivative, from y.
__device__ inline float exponential_unit_slope(float y, float slope, float above) {
  return y > 0.0f ? above : y + slope;
}

constexpr float kSelu = static_cast<float>(kSeluScale);
constexpr float kSeluBelow = static_cast<float>(kSeluScale * kSeluSlope);  ///< -y far below 0

/// t = tanh(log(1 + e^x)) = n/(n + 2) with n = e·(e + 2), e = e^x; it is 1 in float32 from 20 on.
__device__ inline float mish_gate(float x) {
  const float e = expf(fminf(x, 20.0f)), n = e * (e + 2.0f);
  return n / (n + 2.0f);
}

/// t + x·sigmoid(x)·(1 - t²) = t + 4x·e·(1 + e)/(n + 2)², since 1 - t² = 4(1 + e)²/(n + 2)².
__device__ inline float mish_slope(float x) {
  const float e = expf(fminf(x, 20.0f)), n = e * (e + 2.0f), inverse = 1.0f / (n + 2.0f);
  return n * inverse + x * (4.0f * e * inverse) * ((1.0f + e) * inverse);
}

/// max(x, 0) + log(1 + e^-|x|), which is x in float32 from 20 on.
__device__ inline float softplus(float x) { return (x < 0.0f ? 0.0f : x) + log1pf(expf(-fabsf(x))); }

/// min(max(x + 3, 0), 6)/6; exactly 0 and 1 from the corners on.
__device__ inline float hard_sigmoid(float x) {
  const float up = x + 3.0f;
  return (up < 0.0f ? 0.0f : up > 6.0f ? 6.0f : up) * (1.0f / 6);
}
__device__ inline float hard_swish_slope(float x) {
  return x <= -3.0f ? 0.0f : x >= 3.0f ? 1.0f : fmaf(x, 1.0f / 3, 0.5f);
}

/// hard_swish, or the hard_sigmoid by which it weighs x.
struct Hard {
  bool swish;

  __device__ float operator()(float x) const { return hard_sigmoid(x) * (swish ? x : 1.0f); }
  __device__ float derivative(float x) const {
    if (swish) return hard_swish_slope(x);
    return x > -3.0f && x < 3.0f ? 1.0f / 6 : 0.0f;
  }
};

/// A curved activation: gelu, silu, sigmoid, tanh, elu, selu, mish, softplus. The branch is the same for all threads.
struct Smooth {
  Activation kind;
  float slope;

  __device__ float operator()(float x) const {
    switch (kind) {
      case Activation::gelu:
        return x * normcdff(x);
      case Activation::silu:
        return x * logistic(x);
      case Activation::sigmoid:
        return logistic(x);
      case Activation::elu:
        return exponential_unit(x, slope, 1.0f);
      case Activation::selu:
        return exponential_unit(x, kSeluBelow, kSelu);
      case Activation::mish:
        return x * mish_gate(x);
      case Activation::softplus:
        return softplus(x);
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
      case Activation::elu:
        return exponential_unit_slope(exponential_unit(x, slope, 1.0f), slope, 1.0f);
      case Activation::selu:
        return exponential_unit_slope(exponential_unit(x, kSeluBelow, kSelu), kSeluBelow, kSelu);
      case Activation::mish:
        return mish_slope(x);
      case Activation::softplus:
        return logistic(x);
      default: {
        const float t = tanhf(x);
        return 1.0f - t * t;
      }
    }
  }
};

/// Calls call(f) with what computes `f` on the device: three instances of the caller's kernel. (One with every function
/// would need the registers of the most costly.)
template <class Call>
void with_activation(ActivationFunction f, Call&& call) {
  if (is_piecewise(f.kind)) return call(PiecewiseLinear::of(f));
  if (f.kind == Activation::hard_swish || f.kind == Activation::hard_sigmoid)
    return call(Hard{f.kind == Activation::hard_swish});
  call(Smooth{f.kind, f.slope});
}

}  // namespace bantam::kernels::cuda
