// exp, log(1 + x) and tanh in plain arithmetic, without branches or calls, so that loops over them vectorise. About 2
// units in the last place.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace bantam::kernels::cpu {

/// x = n·ln 2 + r with |r| <= ln 2 / 2: 2^n, and e^r - 1 by its Taylor series (the term left out, r^8/8!, is below
/// 2^-27).
struct ReducedExp {
  float power;
  float expm1;
};

/// x in [-87, 88], or NaN (then expm1 is NaN).
[[gnu::always_inline]] inline ReducedExp reduce_exp(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5·2^23: adding it puts the rounded integer in the low bits
  const float shifted = x * 1.44269504f + kRound;
  const float n = shifted - kRound;
  // ln 2 as the sum of two floats: the first has few enough bits for its product with n to be exact.
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  const std::uint32_t exponent = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kRound) + 127u;
  return {std::bit_cast<float>(exponent << 23), (p * r) * r + r};
}

/// e^x for x <= 88; 0 below -87, where float32 runs out of normal numbers; NaN for NaN.
[[gnu::always_inline]] inline float exp_bounded(float x) {
  const ReducedExp e = reduce_exp(x < -87.0f ? -87.0f : x);
  const float value = e.power + e.power * e.expm1;
  return x < -87.0f ? 0.0f : value;
}

/// e^x - 1 for x <= 0, with its digits near 0; -1 below -87; NaN for NaN.
[[gnu::always_inline]] inline float expm1_bounded(float x) {
  const ReducedExp e = reduce_exp(x < -87.0f ? -87.0f : x);
  return e.power * e.expm1 + (e.power - 1.0f);
}

/// log(1 + x) for x in [0, 1], as 2·artanh(x/(2 + x)) by its series (the term left out, s^17/17 with s <= 1/3, is below
/// 2^-30 of the sum).
[[gnu::always_inline]] inline float log1p_unit(float x) {
  const float s = x / (2.0f + x), s2 = s * s;
  float p = 1.0f / 15;
  p = p * s2 + 1.0f / 13;
  p = p * s2 + 1.0f / 11;
  p = p * s2 + 1.0f / 9;
  p = p * s2 + 1.0f / 7;
  p = p * s2 + 1.0f / 5;
  p = p * s2 + 1.0f / 3;
  return 2.0f * (s + s * s2 * p);
}

/// 1/(1 + e^-x), without overflow for any x.
[[gnu::always_inline]] inline float sigmoid(float x) {
  const float e = exp_bounded(-std::fabs(x));
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}

/// tanh|x| = t/(t + 2) with t = e^2|x| - 1, which keeps its digits near 0. It is 1 in float32 from 9.02 on.
[[gnu::always_inline]] inline float tanh_bounded(float x) {
  const float doubled = 2 * std::fabs(x);
  const ReducedExp e = reduce_exp(doubled > 20.0f ? 20.0f : doubled);
  const float t = e.power * e.expm1 + (e.power - 1.0f);
  return std::copysign(t / (t + 2.0f), x);
}

}  // namespace bantam::kernels::cpu
