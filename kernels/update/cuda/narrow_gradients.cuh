// Four gradients at once as they lie in the arena, float32 or narrow.
#pragma once

#include "bantam/kernels/common/cuda/vectorized.cuh"
#include "bantam/kernels/update/update.h"

namespace bantam::kernels::cuda {

inline constexpr int kQuad = 4;  ///< elements a thread handles at once
inline constexpr std::int64_t kQuadsOfWeightBlock = kWeightBlockSize / kQuad;

/// Bits of quad `quad` of a narrow span at `place`. Past the first-level cache, as all that kernels which start
/// early read.
__device__ inline uint4 load_narrow(const float* place, std::int64_t quad) {
  const uint2 bits = __ldcg(reinterpret_cast<const uint2*>(place) + quad);
  return {bits.x, bits.y, 0, 0};
}

/// Loaded in one go, made floats where they are used: several loads can be under way.
struct GradientQuad {
  uint4 bits;
  bool narrow;

  __device__ Pack<float, kQuad> wide(DType dtype) const {
    if (!narrow)
      return {{__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z), __uint_as_float(bits.w)}};
    if (dtype == DType::bfloat16)
      return {{__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xffff0000u), __uint_as_float(bits.y << 16),
               __uint_as_float(bits.y & 0xffff0000u)}};
    const float2 low = __half22float2(reinterpret_cast<const __half2&>(bits.x)),
                 high = __half22float2(reinterpret_cast<const __half2&>(bits.y));
    return {{low.x, low.y, high.x, high.y}};
  }
};

/// Quad `quad` of the arena's gradients, of which some are narrow where kNarrow.
template <bool kNarrow>
__device__ inline GradientQuad load_gradient(const UpdateArena& arena, std::int64_t quad) {
  if constexpr (kNarrow) {
    const std::int64_t begin = arena.narrow.begin_of(quad / kQuadsOfWeightBlock);
    if (begin >= 0)
      return {load_narrow(arena.gradient + begin * kWeightBlockSize, quad - begin * kQuadsOfWeightBlock), true};
  }
  return {__ldcg(reinterpret_cast<const uint4*>(arena.gradient) + quad), false};
}

}  // namespace bantam::kernels::cuda
