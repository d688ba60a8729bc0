// Activations and their derivatives on the device, for kernels that apply them to what they compute.
#pragma once

#include "bantam/kernels/elementwise/cuda/curve_math.cuh"
#include "bantam/kernels/elementwise/piecewise.h"

namespace bantam::kernels::cuda {

struct Gelu {
  /// x·Φ(x) = max(x, 0) - |x|·Φ(-|x|).
  __device__ float operator()(float x) const {
    const NormalTail tail = NormalTail::of(x);
    return fmaf(-tail.a, tail.power * tail.ratio, fmaxf(x, 0.0f));
  }
  /// Φ(x) + x·φ(x): that of -|x|, or 1 less it.
  __device__ float derivative(float x) const {
    const NormalTail tail = NormalTail::of(x);
    const float left = tail.power * fmaf(-0.398942280f, tail.a, tail.ratio);
    return x < 0.0f ? left : 1.0f - left;
  }
};

struct Silu {
  __device__ float operator()(float x) const { return x * Logistic::of(x).value; }
  /// s·(1 + x·(1 - s)), s the logistic function.
  __device__ float derivative(float x) const {
    const Logistic s = Logistic::of(x);
    return s.value * fmaf(x, s.rest, 1.0f);
  }
};

struct Sigmoid {
  __device__ float operator()(float x) const { return Logistic::of(x).value; }
  __device__ float derivative(float x) const {
    const Logistic s = Logistic::of(x);
    return s.value * s.rest;
  }
};

struct Tanh {
  __device__ float operator()(float x) const { return tanhf(x); }
  __device__ float derivative(float x) const {
    const float t = tanhf(x);
    return 1.0f - t * t;
  }
};

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

/// elu with above = 1; selu.
struct ExponentialUnit {
  float slope, above;

  __device__ float operator()(float x) const { return exponential_unit(x, slope, above); }
  __device__ float derivative(float x) const { return exponential_unit_slope((*this)(x), slope, above); }
};

/// x·t with t = tanh(log(1 + e^x)) = n/(n + 2), n = e·(e + 2), e = e^x; t is 1 in float32 from 20 on.
struct Mish {
  __device__ float operator()(float x) const {
    const float e = exponential(smaller(larger(x, kLeastExponent), 20.0f)), n = e * (e + 2.0f);
    return x * (n * reciprocal(n + 2.0f));
  }
  /// t + x·sigmoid(x)·(1 - t²) = t + 4x·e·(1 + e)/(n + 2)², since 1 - t² = 4(1 + e)²/(n + 2)².
  __device__ float derivative(float x) const {
    const float bounded = smaller(larger(x, kLeastExponent), 20.0f);  // beyond, the second term has no digits left
    const float e = exponential(bounded), n = e * (e + 2.0f), inverse = reciprocal(n + 2.0f);
    return fmaf(bounded * (4.0f * e * inverse), (1.0f + e) * inverse, n * inverse);
  }
};

/// max(x, 0) + log(1 + e^-|x|).
struct Softplus {
  __device__ float operator()(float x) const {
    return fmaxf(x, 0.0f) + log1p_unit(exponential(larger(-fabsf(x), kLeastExponent)));
  }
  __device__ float derivative(float x) const { return Logistic::of(x).value; }
};

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

/// Calls call(curve) with what computes a curved activation. The branch is the same for all threads.
template <class Call>
__device__ inline void with_curve(Activation kind, float slope, Call&& call) {
  switch (kind) {
    case Activation::gelu:
      return call(Gelu{});
    case Activation::silu:
      return call(Silu{});
    case Activation::sigmoid:
      return call(Sigmoid{});
    case Activation::elu:
      return call(ExponentialUnit{slope, 1.0f});
    case Activation::selu:
      return call(ExponentialUnit{kSeluBelow, kSelu});
    case Activation::mish:
      return call(Mish{});
    case Activation::softplus:
      return call(Softplus{});
    default:
      return call(Tanh{});
  }
}

/// An array that functions accept and return in registers.
template <int N>
struct Values {
  float v[N];

  static __device__ Values of(const float (&from)[N]) {
    Values values;
#pragma unroll
    for (int n = 0; n < N; ++n) values.v[n] = from[n];
    return values;
  }
  __device__ void to(float (&into)[N]) const {
#pragma unroll
    for (int n = 0; n < N; ++n) into[n] = v[n];
  }
};

/// f(x) or f'(x) of N values for a curved f. A function that is called, once for N values: kernels that unroll their
/// loops have the code of all curves once instead of once a value, as much as an instruction cache holds. The call
/// itself costs two instructions, since its arguments stay in the registers where they are.
template <bool kSlopes, int N>
__device__ __noinline__ Values<N> curved(Activation kind, float slope, Values<N> x) {
  with_curve(kind, slope, [&](auto curve) {
#pragma unroll
    for (int n = 0; n < N; ++n) x.v[n] = kSlopes ? curve.derivative(x.v[n]) : curve(x.v[n]);
  });
  return x;
}

/// A curved activation: gelu, silu, sigmoid, tanh, elu, selu, mish, softplus.
struct Smooth {
  Activation kind;
  float slope;

  __device__ float operator()(float x) const { return curved<false>(kind, slope, Values<1>{x}).v[0]; }
  __device__ float derivative(float x) const { return curved<true>(kind, slope, Values<1>{x}).v[0]; }
};

/// x becomes f(x), N values at once.
template <class Function, int N>
__device__ inline void apply_values(const Function& f, float (&x)[N]) {
#pragma unroll
  for (int n = 0; n < N; ++n) x[n] = f(x[n]);
}

/// x becomes f'(x), N values at once.
template <class Function, int N>
__device__ inline void apply_slopes(const Function& f, float (&x)[N]) {
#pragma unroll
  for (int n = 0; n < N; ++n) x[n] = f.derivative(x[n]);
}

template <int N>
__device__ inline void apply_values(const Smooth& f, float (&x)[N]) {
  curved<false>(f.kind, f.slope, Values<N>::of(x)).to(x);
}
template <int N>
__device__ inline void apply_slopes(const Smooth& f, float (&x)[N]) {
  curved<true>(f.kind, f.slope, Values<N>::of(x)).to(x);
}

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
