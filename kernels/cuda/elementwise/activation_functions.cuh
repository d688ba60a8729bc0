// The activations as functions of a small array of values on CUDA, for kernels that apply one to what they read.
#pragma once

#include "bantam/kernels/contracts/elementwise/activation.h"
#include "bantam/kernels/cuda/elementwise/activation_math.cuh"

namespace bantam::kernels::cuda {

/// x becomes f(x), N values at once; the function is chosen once for them (the branch is the same for all threads).
struct ActivationValues {
  Activation activation;
  float slope;

  template <int N>
  __device__ void operator()(float (&x)[N]) const {
    switch (activation) {
      case Activation::none:
        break;
      case Activation::relu:
        for (float& v : x) v = v < 0 ? 0.0f : v;
        break;
      case Activation::relu6:
        for (float& v : x) v = v < 0 ? 0.0f : v > 6 ? 6.0f : v;
        break;
      case Activation::leaky_relu:
        for (float& v : x) v = v < 0 ? slope * v : v;
        break;
      case Activation::gelu:
        for (float& v : x) v = v * normcdff(v);
        break;
      case Activation::silu:
        for (float& v : x) v = v * logistic(v);
        break;
      case Activation::sigmoid:
        for (float& v : x) v = logistic(v);
        break;
      case Activation::tanh:
        for (float& v : x) v = tanhf(v);
        break;
      case Activation::elu:
        for (float& v : x) v = exponential_unit(v, slope, 1.0f);
        break;
      case Activation::selu:
        for (float& v : x) v = exponential_unit(v, kSeluBelow, kSelu);
        break;
      case Activation::mish:
        for (float& v : x) v = v * mish_gate(v);
        break;
      case Activation::hard_swish:
        for (float& v : x) v = v * hard_sigmoid(v);
        break;
      case Activation::hard_sigmoid:
        for (float& v : x) v = hard_sigmoid(v);
        break;
      case Activation::softplus:
        for (float& v : x) v = softplus(v);
        break;
    }
  }
};

/// d holds dy and becomes dy·f'; s is x or y, as activation_grad_reads_input says.
struct ActivationSlopes {
  Activation activation;
  float slope;

  template <int N>
  __device__ void operator()(const float (&s)[N], float (&d)[N]) const {
    switch (activation) {
      case Activation::none:
        break;
      case Activation::relu:
        for (int k = 0; k < N; ++k) d[k] *= s[k] > 0 ? 1.0f : 0.0f;
        break;
      case Activation::relu6:
        for (int k = 0; k < N; ++k) d[k] *= s[k] > 0 && s[k] < 6 ? 1.0f : 0.0f;
        break;
      case Activation::leaky_relu:
        for (int k = 0; k < N; ++k) d[k] *= s[k] > 0 ? 1.0f : slope;
        break;
      case Activation::gelu:
        for (int k = 0; k < N; ++k) d[k] *= gelu_slope(s[k]);
        break;
      case Activation::silu:
        for (int k = 0; k < N; ++k) d[k] *= silu_slope(s[k]);
        break;
      case Activation::sigmoid:
        for (int k = 0; k < N; ++k) d[k] *= s[k] * (1.0f - s[k]);
        break;
      case Activation::tanh:
        for (int k = 0; k < N; ++k) d[k] *= 1.0f - s[k] * s[k];
        break;
      case Activation::elu:
        for (int k = 0; k < N; ++k) d[k] *= exponential_unit_slope(s[k], slope, 1.0f);
        break;
      case Activation::selu:
        for (int k = 0; k < N; ++k) d[k] *= exponential_unit_slope(s[k], kSeluBelow, kSelu);
        break;
      case Activation::mish:
        for (int k = 0; k < N; ++k) d[k] *= mish_slope(s[k]);
        break;
      case Activation::hard_swish:
        for (int k = 0; k < N; ++k) d[k] *= hard_swish_slope(s[k]);
        break;
      case Activation::hard_sigmoid:
        for (int k = 0; k < N; ++k) d[k] *= s[k] > 0 && s[k] < 1 ? 1.0f / 6 : 0.0f;
        break;
      case Activation::softplus:
        for (int k = 0; k < N; ++k) d[k] *= -expm1f(-s[k]);
        break;
    }
  }
};

}  // namespace bantam::kernels::cuda
