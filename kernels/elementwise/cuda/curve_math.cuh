// exp, the logistic function, the normal distribution and log(1 + e^x) in few instructions, for curved activations.
//
// They are made of ex2.approx.ftz and rcp.approx.ftz, whose errors the PTX ISA bounds by 2 ulp and 1 ulp: IEEE division
// and the library's functions need several times the instructions, and branches. Emulated over floats of [-100, 100],
// with both errors at their bounds and in the worst direction, every activation and derivative of activation_math.cuh
// that is made of them is within 5.2·2^-24·max(1, |f(x)|) of f(x). Activations keep their digits in a left tail: they
// are within 14 ulp of f(x) (within 10 if ex2 and rcp were rounded correctly) until e^x, or e^(-x²/2), falls below the
// normal numbers of float32; from there on they are 0.
#pragma once

namespace bantam::kernels::cuda {

/// min(x, y) and max(x, y) for a y that is a number; NaN stays NaN, which fminf and fmaxf would replace.
__device__ inline float smaller(float x, float y) { return x > y ? y : x; }
__device__ inline float larger(float x, float y) { return x < y ? y : x; }

__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

constexpr float kLog2OfE = 1.44269502f;  ///< below it by 1.3e-8 of it
constexpr float kLogOf2 = 0.693147181f;
constexpr float kLeastExponent = -104.0f;  ///< e^x is 0 in what `exponential` computes from -88 down

/// e^x for x in [-104, 88]: 2^h·(1 + d), where h is x·log2(e) rounded and d what the rounding took from x; without d,
/// the error would be |x| times that of one rounding.
__device__ inline float exponential(float x) {
  const float h = x * kLog2OfE, power = power_of_two(h);
  return fmaf(power, fmaf(h, -kLogOf2, x), power);
}
/// e^(x + low), |low| below an ulp of x.
__device__ inline float exponential(float x, float low) {
  const float h = x * kLog2OfE, power = power_of_two(h);
  return fmaf(power, fmaf(h, -kLogOf2, x) + low, power);
}

/// s = 1/(1 + e^-x), and 1 - s with its digits where s is near 1.
struct Logistic {
  float value, rest;

  /// e^-x as above, h rounded down: then d is not below 0 for x < 0 (for x > 0, e^-x needs fewer digits), and may be
  /// saturated, which makes 0 of the NaN that it is for x = ∞.
  static __device__ Logistic of(float x) {
    const float y = smaller(-x, 88.0f), h = __fmul_rd(y, kLog2OfE), power = power_of_two(h);
    const float e = fmaf(power, __saturatef(fmaf(h, -kLogOf2, y)), power), s = reciprocal(1.0f + e);
    return {s, e * s};
  }
};

/// Φ(-a) = e^(-a²/2)·ratio, a = |x|. The ratio is a quotient of polynomials in a (relative error 2^-27 on [0, 13.5],
/// beyond which the power is 0); all of their coefficients are positive, so that no digits cancel.
struct NormalTail {
  float a, power, ratio;

  static __device__ NormalTail of(float x) {
    const float a = smaller(fabsf(x), 14.0f), half = -0.5f * a, square = half * a;
    float n = fmaf(0.004036984104f, a, 0.04009796874f), d = fmaf(0.01011907966f, a, 0.1005179121f);
    n = fmaf(n, a, 0.1816455655f);
    d = fmaf(d, a, 0.4652745224f);
    n = fmaf(n, a, 0.4361458976f);
    d = fmaf(d, a, 1.195895108f);
    n = fmaf(n, a, 0.5f);
    d = fmaf(d, a, 1.670176725f);
    d = fmaf(d, a, 1.0f);
    return {a, exponential(square, fmaf(half, a, -square)), n * reciprocal(d)};
  }
};

/// log(1 + u) for u in [0, 1], as 2·artanh(u/(2 + u)) by its series (the term left out is below 2^-26 of the sum).
__device__ inline float log1p_unit(float u) {
  const float s = u * reciprocal(2.0f + u), s2 = s * s;
  float p = 2.0f / 15;
  p = fmaf(p, s2, 2.0f / 13);
  p = fmaf(p, s2, 2.0f / 11);
  p = fmaf(p, s2, 2.0f / 9);
  p = fmaf(p, s2, 2.0f / 7);
  p = fmaf(p, s2, 2.0f / 5);
  p = fmaf(p, s2, 2.0f / 3);
  return fmaf(s * s2, p, 2.0f * s);
}

}  // namespace bantam::kernels::cuda
