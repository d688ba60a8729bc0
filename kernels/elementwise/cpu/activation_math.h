// Activations and their derivatives, one value or eight at a time, for CPU kernels that apply them to what they
// compute.
#pragma once

#include <cmath>

#include "bantam/kernels/common/cpu/float8.h"
#include "bantam/kernels/common/cpu/vector_math.h"
#include "bantam/kernels/elementwise/piecewise.h"

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

/// slope·(e^x - 1) below 0.
[[gnu::always_inline]] inline float elu(float x, float slope) {
  return x < 0 ? slope * expm1_bounded(x < 0 ? x : 0.0f) : x;
}
/// From y.
[[gnu::always_inline]] inline float elu_slope(float y, float slope) { return y > 0 ? 1.0f : y + slope; }

inline constexpr float kSelu = static_cast<float>(kSeluScale);
inline constexpr float kSeluBelow = static_cast<float>(kSeluScale * kSeluSlope);  ///< -y far below 0
[[gnu::always_inline]] inline float selu(float x) {
  return x < 0 ? kSeluBelow * expm1_bounded(x < 0 ? x : 0.0f) : kSelu * x;
}
/// From y.
[[gnu::always_inline]] inline float selu_slope(float y) { return y > 0 ? kSelu : y + kSeluBelow; }

/// t = tanh(log(1 + e^x)) = n/(n + 2) with n = e·(e + 2), e = e^x; it is 1 in float32 from 20 on. 1 - t² =
/// 4(1 + e)²/(n + 2)², hence mish' = t + x·sigmoid(x)·(1 - t²) = t + 4x·e·(1 + e)/(n + 2)².
struct MishGate {
  float e, n;
  [[gnu::always_inline]] static MishGate at(float x) {
    const float e = exp_bounded(x > 20.0f ? 20.0f : x);
    return {e, e * (e + 2.0f)};
  }
  [[gnu::always_inline]] float value() const { return n / (n + 2.0f); }
};
[[gnu::always_inline]] inline float mish(float x) { return x * MishGate::at(x).value(); }
[[gnu::always_inline]] inline float mish_slope(float x) {
  const MishGate gate = MishGate::at(x);
  const float inverse = 1.0f / (gate.n + 2.0f);
  const float bounded = x > 20.0f ? 20.0f : x;  // as the gate's: beyond, the second term has no digits left
  return gate.value() + bounded * (4.0f * gate.e * inverse) * ((1.0f + gate.e) * inverse);
}

/// max(x, 0) + log(1 + e^-|x|), which is x in float32 from 20 on.
[[gnu::always_inline]] inline float softplus(float x) {
  return (x < 0 ? 0.0f : x) + log1p_unit(exp_bounded(-std::fabs(x)));
}
/// From y: 1 - e^-y is the sigmoid of x.
[[gnu::always_inline]] inline float softplus_slope(float y) { return -expm1_bounded(-y); }

/// min(max(x + 3, 0), 6)/6; exactly 0 and 1 from the corners on.
[[gnu::always_inline]] inline float hard_sigmoid(float x) {
  const float up = x + 3.0f;
  return (up < 0 ? 0.0f : up > 6.0f ? 6.0f : up) * (1.0f / 6);
}
/// From y.
[[gnu::always_inline]] inline float hard_sigmoid_slope(float y) { return ((y > 0) & (y < 1.0f)) ? 1.0f / 6 : 0.0f; }
/// From x.
[[gnu::always_inline]] inline float hard_swish_slope(float x) {
  const float between = x * (1.0f / 3) + 0.5f;
  return x <= -3.0f ? 0.0f : x >= 3.0f ? 1.0f : between;
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

/// All bits of a lane set where the byte's bit is.
[[gnu::always_inline]] inline Int8 from_bits(std::uint8_t bits) {
  const Int8 lane{1, 2, 4, 8, 16, 32, 64, 128};
  return (lane & static_cast<std::int32_t>(bits)) != 0;
}

/// ReLU, by far the most frequent: Piecewise8 without its choices.
struct Relu8 {
  [[gnu::always_inline]] Float8 operator()(Float8 x) const { return x < 0.0f ? Float8{} : x; }
  [[gnu::always_inline]] Float8 derivative(Float8 x) const { return x > 0.0f ? broadcast8(1.0f) : Float8{}; }
};

/// hard_swish on eight values.
struct HardSwish8 {
  [[gnu::always_inline]] Float8 operator()(Float8 x) const {
    const Float8 up = x + 3.0f, low = up < 0.0f ? Float8{} : up;
    return x * ((low > 6.0f ? broadcast8(6.0f) : low) * (1.0f / 6));
  }
  [[gnu::always_inline]] Float8 derivative(Float8 x) const {
    const Float8 between = x * (1.0f / 3) + 0.5f, low = x <= -3.0f ? Float8{} : between;
    return x >= 3.0f ? broadcast8(1.0f) : low;
  }
};

/// Any activation that is not piecewise, on eight values: functions of its own, which loops call.
struct Smooth8 {
  Activation kind;
  float slope;

  [[gnu::noinline]] Float8 operator()(Float8 x) const {
    switch (kind) {
      case Activation::gelu:
        return each(x, [](float v) { return v * normal_cdf(v); });
      case Activation::silu:
        return each(x, [](float v) { return v * sigmoid(v); });
      case Activation::sigmoid:
        return each(x, [](float v) { return sigmoid(v); });
      case Activation::elu:
        return each(x, [this](float v) { return elu(v, slope); });
      case Activation::selu:
        return each(x, [](float v) { return selu(v); });
      case Activation::mish:
        return each(x, [](float v) { return mish(v); });
      case Activation::softplus:
        return each(x, [](float v) { return softplus(v); });
      case Activation::hard_sigmoid:
        return each(x, [](float v) { return hard_sigmoid(v); });
      case Activation::hard_swish:
        return HardSwish8{}(x);
      default:
        return each(x, [](float v) { return tanh_bounded(v); });
    }
  }
  [[gnu::noinline]] Float8 derivative(Float8 x) const {
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
      case Activation::elu:
        return each(x, [this](float v) { return elu_slope(elu(v, slope), slope); });
      case Activation::selu:
        return each(x, [](float v) { return selu_slope(selu(v)); });
      case Activation::mish:
        return each(x, [](float v) { return mish_slope(v); });
      case Activation::softplus:
        return each(x, [](float v) { return sigmoid(v); });
      case Activation::hard_sigmoid:
        return ((x > -3.0f) & (x < 3.0f)) ? broadcast8(1.0f / 6) : Float8{};
      case Activation::hard_swish:
        return HardSwish8{}.derivative(x);
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

/// Any activation on eight values, chosen each time: for loops that have no instance of their own for it.
struct Chosen8 {
  explicit Chosen8(ActivationFunction f) : line(PiecewiseLinear::of(f)), smooth{f.kind, f.slope} {}

  [[gnu::always_inline]] Float8 operator()(Float8 x) const {
    return is_piecewise(smooth.kind) ? Piecewise8{line}(x) : smooth(x);
  }
  [[gnu::always_inline]] Float8 derivative(Float8 x) const {
    return is_piecewise(smooth.kind) ? Piecewise8{line}.derivative(x) : smooth.derivative(x);
  }

  PiecewiseLinear line;
  Smooth8 smooth;
};

struct Identity8 {
  Float8 operator()(Float8 x) const { return x; }
};

/// Calls call(f8) with what computes `f` eight values at a time: instances of the caller's loop over values of type T,
/// four for float. Of float16 and bfloat16, whose conversions take longer than the choice, there are two.
template <class T, class Call>
void with_activation8(ActivationFunction f, Call&& call) {
  if (f.kind == Activation::relu) return call(Relu8{});
  if constexpr (sizeof(T) < sizeof(float)) {
    call(Chosen8(f));
  } else {
    if (is_piecewise(f.kind)) return call(Piecewise8{PiecewiseLinear::of(f)});
    if (f.kind == Activation::hard_swish) return call(HardSwish8{});
    call(Smooth8{f.kind, f.slope});
  }
}

/// For kernels whose activation may be none: of float one instance more, which computes nothing.
template <class T, class Call>
void with_optional_activation8(ActivationFunction f, Call&& call) {
  if constexpr (sizeof(T) == sizeof(float)) {
    if (f.kind == Activation::none) return call(Identity8{});
  }
  with_activation8<T>(f, call);
}

}  // namespace bantam::kernels::cpu
