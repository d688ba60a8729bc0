// The rules of CUDA's update: how each moves four elements. A rule is a struct with its number of moments and a `move`.
#pragma once

#include "bantam/kernels/common/cuda/vectorized.cuh"
#include "bantam/kernels/update/cuda/narrow_gradients.cuh"
#include "bantam/kernels/update/update.h"
#include "bantam/kernels/update/update_rules.h"

namespace bantam::kernels::cuda {

using Quad = Pack<float, kQuad>;

__device__ inline Quad& quad_at(float* values, std::int64_t i) { return reinterpret_cast<Quad*>(values)[i]; }
/// Past the first-level cache, which kernels that read before they wait cannot trust, and which helps none here.
__device__ inline Quad load_quad(const float* values, std::int64_t i) {
  const float4 v = __ldcg(reinterpret_cast<const float4*>(values) + i);
  return {{v.x, v.y, v.z, v.w}};
}

/// How gradients lie in the arena, and whether they are cut: a kernel is compiled for each.
enum class GradientForm : std::uint8_t {
  wide,     ///< float32
  mixed,    ///< some spans narrow
  clipped,  ///< as mixed, each cut to ±clip_value
};

inline GradientForm form_of(const UpdateArena& arena) {
  return arena.clip_value > 0     ? GradientForm::clipped
         : arena.narrow.count > 0 ? GradientForm::mixed
                                  : GradientForm::wide;
}

/// The gradients of quad `quad` as floats, of which `limit` is the largest magnitude.
template <GradientForm kForm>
__device__ inline Quad wide_gradient(const GradientQuad& gradient, DType dtype, float limit) {
  Quad wide = gradient.wide(dtype);
  if constexpr (kForm == GradientForm::clipped) {
#pragma unroll
    for (int k = 0; k < kQuad; ++k) wide.v[k] = fminf(fmaxf(wide.v[k], -limit), limit);
  }
  return wide;
}

/// Of wide_gradient; not used by forms that cut nothing.
template <GradientForm kForm>
__device__ inline float limit_of(const UpdateArena& arena, float gradient_factor) {
  return kForm == GradientForm::clipped ? gradient_limit(arena, gradient_factor) : 0.0f;
}

/// One group's values, as the inner loops read them.
struct StepValues {
  float lr;
  float decay;            // times the weight, added to the gradient (sgd, adam, rmsprop)
  float decoupled_decay;  // times the weight, added to the step (adamw, lion, lamb)
  float beta1, beta2, epsilon;
  float correction1, correction2;  // 1/(1 - beta^t)
  float undamped;                  // sgd_dampened: what the gradient is multiplied by
};

/// 1/(1 - beta^t) = -1/expm1(t·log1p(beta - 1)): in float within a few units in the last place, also where beta^t is
/// close to 1.
__device__ inline float bias_correction(float beta, float t) { return -1.0f / expm1f(t * log1pf(beta - 1.0f)); }

__device__ inline StepValues step_values(OptimizerKind kind, const UpdateGroup& group, float t) {
  const bool decoupled = decay_is_decoupled(kind);
  return {group.learning_rate,
          decoupled ? 0.0f : group.weight_decay,
          decoupled ? group.weight_decay : 0.0f,
          group.beta1,
          group.beta2,
          group.epsilon,
          bias_correction(group.beta1, t),
          bias_correction(group.beta2, t),
          undamped(group, t <= 1.0f ? 1 : 2)};
}

/// Whether a quad's weights are in `master`.
__device__ inline bool quad_has_master(const UpdateArena& arena, std::int64_t quad) {
  return quad * kQuad >= arena.first_master;
}
__device__ inline std::int64_t master_quad(const UpdateArena& arena, std::int64_t quad) {
  return quad - arena.first_master / kQuad;
}

/// The weights of a quad as they lie in memory, in the form of GradientQuad.
__device__ inline GradientQuad load_weights(const UpdateArena& arena, std::int64_t quad) {
  if (!quad_has_master(arena, quad)) return {load_narrow(static_cast<const float*>(arena.compute), quad), true};
  return {__ldcg(reinterpret_cast<const uint4*>(arena.master) + master_quad(arena, quad)), false};
}

/// Casts the new values of a quad into the compute slot.
__device__ inline void store_compute(const UpdateArena& arena, std::int64_t quad, const Quad& w) {
  const std::int64_t at = quad * kQuad;
  switch (arena.compute_dtype) {
    case DType::float16:
      repack<kQuad>(w.v, static_cast<__half*>(arena.compute) + at);
      break;
    case DType::bfloat16:
      repack<kQuad>(w.v, static_cast<__nv_bfloat16*>(arena.compute) + at);
      break;
    default:
      repack<kQuad>(w.v, static_cast<float*>(arena.compute) + at);
      break;
  }
}

/// Stores the new values of a quad of `span` where its weights lie, and in the compute slot where they are copied.
__device__ inline void store_weights(const UpdateArena& arena, const ArenaSpan& span, std::int64_t quad,
                                     const Quad& w) {
  if (quad_has_master(arena, quad)) quad_at(arena.master, master_quad(arena, quad)) = w;
  if (arena.compute != nullptr && span.compute_copy) store_compute(arena, quad, w);
}

/// What an update of kMoments moments reads of four elements.
template <int kMoments>
struct QuadState {
  GradientQuad g;
  Quad w, m, v, b;

  /// w has the bits that lie in memory until widen_weights: nothing waits for them here.
  __device__ void load(const UpdateArena& arena, std::int64_t quad) {
    const uint4 bits = load_weights(arena, quad).bits;
    w = {{__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z), __uint_as_float(bits.w)}};
    if constexpr (kMoments > 0) m = load_quad(arena.moment1, quad);
    if constexpr (kMoments > 1) v = load_quad(arena.moment2, quad);
    if constexpr (kMoments > 2) b = load_quad(arena.moment3, quad);
  }
  __device__ void widen_weights(const UpdateArena& arena, std::int64_t quad) {
    if (quad_has_master(arena, quad)) return;
    w = GradientQuad{{__float_as_uint(w.v[0]), __float_as_uint(w.v[1]), 0, 0}, true}.wide(arena.compute_dtype);
  }
  __device__ void store_moments(const UpdateArena& arena, std::int64_t quad) const {
    if constexpr (kMoments > 0) quad_at(arena.moment1, quad) = m;
    if constexpr (kMoments > 1) quad_at(arena.moment2, quad) = v;
    if constexpr (kMoments > 2) quad_at(arena.moment3, quad) = b;
  }
};

/// Within a unit in the last place, in one instruction; √ as IEEE rounds it costs a dozen and a branch, and is a
/// quarter of what Adam computes. Likewise __fdividef, within two units (of divisors up to 2^126).
__device__ inline float square_root(float x) {
  float root;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
}

/// dividend/divisor; where nothing ever came (padding) and epsilon is 0, 0/0 counts as 0.
__device__ inline float quotient(float dividend, float divisor) {
  return divisor != 0 ? __fdividef(dividend, divisor) : 0.0f;
}

struct PlainSgd {
  static constexpr int kMoments = 0;
  __device__ static void move(QuadState<0>& q, const Quad& gradient, const StepValues& s, float factor) {
#pragma unroll
    for (int k = 0; k < kQuad; ++k) q.w.v[k] -= s.lr * (gradient.v[k] * factor + s.decay * q.w.v[k]);
  }
};

template <bool kNesterov>
struct Momentum {
  static constexpr int kMoments = 1;
  __device__ static void move(QuadState<1>& q, const Quad& gradient, const StepValues& s, float factor) {
#pragma unroll
    for (int k = 0; k < kQuad; ++k) {
      const float g = gradient.v[k] * factor + s.decay * q.w.v[k];
      q.m.v[k] = s.beta1 * q.m.v[k] + g;
      q.w.v[k] -= s.lr * (kNesterov ? g + s.beta1 * q.m.v[k] : q.m.v[k]);
    }
  }
};

struct DampenedMomentum {
  static constexpr int kMoments = 1;
  __device__ static void move(QuadState<1>& q, const Quad& gradient, const StepValues& s, float factor) {
#pragma unroll
    for (int k = 0; k < kQuad; ++k) {
      const float g = gradient.v[k] * factor + s.decay * q.w.v[k];
      q.m.v[k] = s.beta1 * q.m.v[k] + s.undamped * g;
      q.w.v[k] -= s.lr * q.m.v[k];
    }
  }
};

/// adam and adamw; lamb in two passes.
struct Adam {
  static constexpr int kMoments = 2;
  __device__ static void move_moments(QuadState<2>& q, const Quad& gradient, const StepValues& s, float factor, int k) {
    const float g = gradient.v[k] * factor + s.decay * q.w.v[k];
    q.m.v[k] = s.beta1 * q.m.v[k] + (1.0f - s.beta1) * g;
    q.v.v[k] = s.beta2 * q.v.v[k] + (1.0f - s.beta2) * g * g;
  }
  /// What the learning rate multiplies.
  __device__ static float step(const QuadState<2>& q, const StepValues& s, int k) {
    const float divisor = square_root(q.v.v[k] * s.correction2) + s.epsilon;
    return quotient(q.m.v[k] * s.correction1, divisor) + s.decoupled_decay * q.w.v[k];
  }
  __device__ static void move(QuadState<2>& q, const Quad& gradient, const StepValues& s, float factor) {
#pragma unroll
    for (int k = 0; k < kQuad; ++k) {
      move_moments(q, gradient, s, factor, k);
      q.w.v[k] -= s.lr * step(q, s, k);
    }
  }
};

/// The slots: m is the mean of squares; then come the mean of gradients (centered) and the momentum buffer.
template <bool kCentered, bool kMomentum>
struct RmsProp {
  static constexpr int kMoments = 1 + (kCentered ? 1 : 0) + (kMomentum ? 1 : 0);
  __device__ static void move(QuadState<kMoments>& q, const Quad& gradient, const StepValues& s, float factor) {
    Quad& buffer = kCentered ? q.b : q.v;
#pragma unroll
    for (int k = 0; k < kQuad; ++k) {
      const float g = gradient.v[k] * factor + s.decay * q.w.v[k];
      float square = q.m.v[k] = s.beta2 * q.m.v[k] + (1.0f - s.beta2) * g * g;
      if constexpr (kCentered) {
        q.v.v[k] = s.beta2 * q.v.v[k] + (1.0f - s.beta2) * g;
        square = fmaxf(square - q.v.v[k] * q.v.v[k], 0.0f);
      }
      float step = quotient(g, square_root(square) + s.epsilon);
      if constexpr (kMomentum) step = buffer.v[k] = s.beta1 * buffer.v[k] + step;
      q.w.v[k] -= s.lr * step;
    }
  }
};

struct Lion {
  static constexpr int kMoments = 1;
  __device__ static void move(QuadState<1>& q, const Quad& gradient, const StepValues& s, float factor) {
#pragma unroll
    for (int k = 0; k < kQuad; ++k) {
      const float g = gradient.v[k] * factor;
      const float direction = s.beta1 * q.m.v[k] + (1.0f - s.beta1) * g;
      q.m.v[k] = s.beta2 * q.m.v[k] + (1.0f - s.beta2) * g;
      const float sign = direction > 0 ? 1.0f : direction < 0 ? -1.0f : 0.0f;
      q.w.v[k] -= s.lr * (sign + s.decoupled_decay * q.w.v[k]);
    }
  }
};

}  // namespace bantam::kernels::cuda
