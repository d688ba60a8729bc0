// Four neighbouring floats of an arena at once, as the kernels that follow an update read and write them.
#pragma once

#include "bantam/kernels/common/cuda/vectorized.cuh"
#include "bantam/kernels/update/cuda/narrow_gradients.cuh"

namespace bantam::kernels::cuda {

using FloatQuad = Pack<float, kQuad>;

/// Past the first-level cache, as kernels that start early read.
__device__ inline FloatQuad load_floats(const float* values, std::int64_t quad) {
  const float4 v = __ldcg(reinterpret_cast<const float4*>(values) + quad);
  return {{v.x, v.y, v.z, v.w}};
}

__device__ inline void store_floats(float* values, std::int64_t quad, const FloatQuad& v) {
  reinterpret_cast<FloatQuad*>(values)[quad] = v;
}

}  // namespace bantam::kernels::cuda
