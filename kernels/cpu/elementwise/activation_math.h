// Activations and their derivatives, one value or eight at a time, for CPU kernels that apply them to what they
// compute.
#pragma once

#include <cmath>

#include "bantam/kernels/contracts/elementwise/piecewise.h"
#include "bantam/kernels/cpu/device/float8.h"
#include "bantam/kernels/cpu/device/vector_math.h"

namespace bantam::kernels::cpu {

/// Φ(x); by erfc, which keeps its digits in the left tail.
inline float normal_cdf(float x) { return 0.5f * std::erfc(-x * 0.707106781f); }

/// d/dx x·Φ(x) = Φ(x) + x·φ(x).
inline float gelu_slope(float x) { return normal_cdf(x) + x * 0.398942280f * exp_bounded(-0.5f * x * x); }

/// d/dx x·s(x) = s·(1 + x·(1 - s)), s the sigmoid.
[[gnu::always_inline]] inline float silu_slope(float x) {
  const float s = sigmoid(x);
  return s * (1.0f + x * (1.0f - s));
}

/// One bit a lane, of lanes that are all ones or zero: a byte of a mask.
[[gnu::always_inline]] inline std::uint8_t to_bits(Int8 lanes) {
#if defined(__F16C__) && defined(__AVX__)
  return static_cast<std::uint8_t>(_mm256_movemask_ps(reinterpret_cast<__m256>(lanes)));
#else
  unsigned bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= (lanes[i] != 0 ? 1u : 0u) << i;
  return static_cast<std::uint8_t>(bits);
#endif
}

/// A piecewise activation on eight values; the same selects as PiecewiseLinear's.
struct Piecewise8 {
  PiecewiseLinear line;

  [[gnu::always_inline]] Float8 operator()(Float8 x) const {
    const Float8 low = line.below != 0.0f ? x * line.below : Float8{};
    const Float8 high = line.bounded ? (x > line.top ? broadcast8(line.top) : x) : x;
    return x < 0.0f ? low : high;
  }
  /// All bits set where f' is 1; elsewhere it is `below`.
  [[gnu::always_inline]] Int8 rises(Float8 x) const {
    Int8 up = x > 0.0f;
    if (line.bounded) up &= ~(x >= line.top);
    return up;
  }
  [[gnu::always_inline]] Float8 derivative(Float8 x) const {
    return rises(x) ? broadcast8(1.0f) : broadcast8(line.below);
  }
};

/// ReLU, by far the most frequent: Piecewise8 without its choices.
struct Relu8 {
  [[gnu::always_inline]] Float8 operator()(Float8 x) const { return x < 0.0f ? Float8{} : x; }
  [[gnu::always_inline]] Float8 derivative(Float8 x) const { return x > 0.0f ? broadcast8(1.0f) : Float8{}; }
};

/// A smooth activation (gelu, silu, sigmoid, tanh) on eight values.
struct Smooth8 {
  Activation kind;

  Float8 operator()(Float8 x) const {
    switch (kind) {
      case Activation::gelu:
        return each(x, [](float v) { return v * normal_cdf(v); });
      case Activation::silu:
        return each(x, [](float v) { return v * sigmoid(v); });
      case Activation::sigmoid:
        return each(x, [](float v) { return sigmoid(v); });
      default:
        return each(x, [](float v) { return tanh_bounded(v); });
    }
  }
  Float8 derivative(Float8 x) const {
    switch (kind) {
      case Activation::gelu:
        return each(x, [](float v) { return gelu_slope(v); });
      case Activation::silu:
        return each(x, [](float v) { return silu_slope(v); });
      case Activation::sigmoid:
        return each(x, [](float v) {
          const float s = sigmoid(v);
          return s * (1.0f - s);
        });
      default:
        return each(x, [](float v) {
          const float t = tanh_bounded(v);
          return 1.0f - t * t;
        });
    }
  }

 private:
  template <class Function>
  [[gnu::always_inline]] static Float8 each(Float8 x, Function f) {
    float values[kLanes];
    store8(values, x);
#pragma omp simd
    for (int i = 0; i < kLanes; ++i) values[i] = f(values[i]);
    return load8(values);
  }
};

/// Calls call(f8) with what computes `f` eight values at a time: three instances of the caller's loop.
template <class Call>
void with_activation8(ActivationFunction f, Call&& call) {
  if (f.kind == Activation::relu) return call(Relu8{});
  if (is_piecewise(f.kind)) return call(Piecewise8{PiecewiseLinear::of(f)});
  call(Smooth8{f.kind});
}

}  // namespace bantam::kernels::cpu
