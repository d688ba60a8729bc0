// The activations as functions of a small array of values on CUDA, for kernels that apply one to what they read.
#pragma once

#include "bantam/kernels/elementwise/activation.h"
#include "bantam/kernels/elementwise/cuda/activation_math.cuh"

namespace bantam::kernels::cuda {

/// f of N values, whatever f is. A function that is called, as `curved` is.
template <int N>
__device__ __noinline__ Values<N> activated(Activation activation, float slope, Values<N> x) {
  const auto each = [&](auto f) {
#pragma unroll
    for (int n = 0; n < N; ++n) x.v[n] = f(x.v[n]);
  };
  switch (activation) {
    case Activation::none:
      break;
    case Activation::relu:
      each([](float v) { return v < 0 ? 0.0f : v; });
      break;
    case Activation::relu6:
      each([](float v) { return v < 0 ? 0.0f : v > 6 ? 6.0f : v; });
      break;
    case Activation::leaky_relu:
      each([&](float v) { return v < 0 ? slope * v : v; });
      break;
    case Activation::hard_swish:
      each(Hard{true});
      break;
    case Activation::hard_sigmoid:
      each(Hard{false});
      break;
    default:
      with_curve(activation, slope, each);
  }
  return x;
}

/// x becomes f(x), N values at once.
struct ActivationValues {
  Activation activation;
  float slope;

  template <int N>
  __device__ void operator()(float (&x)[N]) const {
    activated(activation, slope, Values<N>::of(x)).to(x);
  }
};

/// f' of N saved values: of x or y, as activation_grad_reads_input says. A function that is called, as `curved` is.
template <int N>
__device__ __noinline__ Values<N> saved_slopes(Activation activation, float slope, Values<N> saved) {
  const auto each = [&](auto slope_of) {
#pragma unroll
    for (int n = 0; n < N; ++n) saved.v[n] = slope_of(saved.v[n]);
    return saved;
  };
  switch (activation) {
    case Activation::none:
      return each([](float) { return 1.0f; });
    case Activation::relu:
      return each([](float s) { return s > 0 ? 1.0f : 0.0f; });
    case Activation::relu6:
      return each([](float s) { return s > 0 && s < 6 ? 1.0f : 0.0f; });
    case Activation::leaky_relu:
      return each([&](float s) { return s > 0 ? 1.0f : slope; });
    case Activation::gelu:
      return each([](float s) { return Gelu{}.derivative(s); });
    case Activation::silu:
      return each([](float s) { return Silu{}.derivative(s); });
    case Activation::sigmoid:
      return each([](float s) { return s * (1.0f - s); });
    case Activation::tanh:
      return each([](float s) { return 1.0f - s * s; });
    case Activation::elu:
      return each([&](float s) { return exponential_unit_slope(s, slope, 1.0f); });
    case Activation::selu:
      return each([](float s) { return exponential_unit_slope(s, kSeluBelow, kSelu); });
    case Activation::mish:
      return each([](float s) { return Mish{}.derivative(s); });
    case Activation::hard_swish:
      return each(hard_swish_slope);
    case Activation::hard_sigmoid:
      return each([](float s) { return s > 0 && s < 1 ? 1.0f / 6 : 0.0f; });
    default:  // softplus
      return each([](float s) { return -expm1f(-s); });
  }
}

/// d holds dy and becomes dy·f'; s is x or y.
struct ActivationSlopes {
  Activation activation;
  float slope;

  template <int N>
  __device__ void operator()(const float (&s)[N], float (&d)[N]) const {
    const Values<N> slopes = saved_slopes(activation, slope, Values<N>::of(s));
#pragma unroll
    for (int k = 0; k < N; ++k) d[k] *= slopes.v[k];
  }
};

}  // namespace bantam::kernels::cuda
