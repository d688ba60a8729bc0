// Parts of the algebra that GEMMs with simple kernels and wgmma kernels share, so that both compute the same bits of ã.
#pragma once

#include "bantam/kernels/expand/expand_origin.h"
#include "bantam/kernels/norm/cuda/batch_norm_affine.cuh"

namespace bantam::kernels::cuda {

/// A channel's norm, and what is subtracted after its relu.
template <int N>
struct Centred {
  Affine<N> affine;
  float origin[N];
};
/// ã = relu(z) - o, in float32.
struct CentreRule {
  AffineSource norm;

  template <int N>
  __device__ Centred<N> load(std::int64_t c) const {
    Centred<N> kept{norm.load<N>(c), {}};
    float scale[N];
    load_floats(norm.scale, c, 1.0f, scale);
#pragma unroll
    for (int n = 0; n < N; ++n) kept.origin[n] = expand_origin(scale[n], kept.affine.shift[n]);
    return kept;
  }
  template <int N>
  __device__ void apply(const Centred<N>& kept, float (&v)[N]) const {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float z = kept.affine.z(n, v[n]);
      v[n] = (z < 0.0f ? 0.0f : z) - kept.origin[n];  // NaN stays NaN
    }
  }
};

/// Sums of the lanes of a warp: the same in every lane.
template <class R>
__device__ inline R warp_sum(R v) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) v += __shfl_xor_sync(0xffffffffu, v, apart);
  return v;
}
__device__ inline float warp_max(float v) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, apart));
  return v;
}
/// The values of all warps of a block in order, the same in each lane of a warp, by `merge`: the same in every thread.
template <class Merge>
__device__ inline float merge_warps(float v, const Merge& merge) {
  __shared__ float shared[32];
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  v = shared[0];
  for (unsigned i = 1; i < blockDim.x / 32; ++i) v = merge(v, shared[i]);
  return v;
}
/// The largest and the sum of all threads' values: the same in every thread of a block.
__device__ inline float block_max(float v) {
  return merge_warps(warp_max(v), [](float a, float b) { return fmaxf(a, b); });
}
__device__ inline float block_sum(float v) {
  return merge_warps(warp_sum(v), [](float a, float b) { return a + b; });
}

/// 2^e such that v·2^e is in [2^(bits - 1), 2^bits); 1 for 0 and for what is not finite.
__device__ inline float scale_to(float v, int bits) {
  if (!(v > 0.0f) || !(v < INFINITY)) return 1.0f;
  int exponent = 0;
  frexpf(v, &exponent);
  return ldexpf(1.0f, min(max(bits - exponent, -120), 120));
}

}  // namespace bantam::kernels::cuda
