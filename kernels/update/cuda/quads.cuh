// Four neighbouring floats of the arena at once, as the kernels of an update read and write them, and what rules
// compute with on CUDA.
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

/// The `limit` that wide_gradient needs; 0, and not used, for forms that cut nothing.
template <GradientForm kForm>
__device__ inline float limit_of(const UpdateArena& arena, float gradient_factor) {
  return kForm == GradientForm::clipped ? gradient_limit(arena, gradient_factor) : 0.0f;
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

/// The operands of four elements that a rule of kSlots slots reads.
template <int kSlots>
struct QuadState {
  GradientQuad g;
  Quad w, slots[kSlots > 0 ? kSlots : 1];

  /// w has the bits that lie in memory until widen_weights: nothing waits for them here.
  __device__ void load(const UpdateArena& arena, std::int64_t quad) {
    const uint4 bits = load_weights(arena, quad).bits;
    w = {{__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z), __uint_as_float(bits.w)}};
#pragma unroll
    for (int i = 0; i < kSlots; ++i) slots[i] = load_quad(arena.slots[i], quad);
  }
  __device__ void widen_weights(const UpdateArena& arena, std::int64_t quad) {
    if (quad_has_master(arena, quad)) return;
    w = GradientQuad{{__float_as_uint(w.v[0]), __float_as_uint(w.v[1]), 0, 0}, true}.wide(arena.compute_dtype);
  }
  __device__ void store_slots(const UpdateArena& arena, std::int64_t quad) const {
#pragma unroll
    for (int i = 0; i < kSlots; ++i) quad_at(arena.slots[i], quad) = slots[i];
  }
  /// Element k, as rules take it, and the way back.
  __device__ rules::Element<kSlots> element(int k) const {
    rules::Element<kSlots> e;
    e.w = w.v[k];
#pragma unroll
    for (int i = 0; i < kSlots; ++i) e.slots[i] = slots[i].v[k];
    return e;
  }
  __device__ void set_element(int k, const rules::Element<kSlots>& e) {
    w.v[k] = e.w;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) slots[i].v[k] = e.slots[i];
  }
};

/// The arithmetic of rules on CUDA.
struct CudaMath {
  /// Within a unit in the last place, in one instruction; √ as IEEE rounds it costs a dozen and a branch, and is a
  /// quarter of what Adam computes. Likewise __fdividef, within two units (of divisors up to 2^126).
  __device__ static float root(float x) {
    float root;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(x));
    return root;
  }
  /// Where nothing ever came (padding) and epsilon is 0, 0/0 counts as 0.
  __device__ static float quotient(float dividend, float divisor) {
    return divisor != 0 ? __fdividef(dividend, divisor) : 0.0f;
  }
  __device__ static float larger(float a, float b) { return fmaxf(a, b); }
  __device__ static float plus_product(const rules::StepValues&, float a, float b, float c) { return a + b * c; }
  /// -1/expm1(t·log1p(beta - 1)): in float within a few units in the last place, also where beta^t is close to 1.
  __device__ static float bias_correction(float beta, std::int64_t t) {
    return -1.0f / expm1f(static_cast<float>(t) * log1pf(beta - 1.0f));
  }
};

}  // namespace bantam::kernels::cuda
