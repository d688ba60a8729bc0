// Passes over rows: a thread has eight channels, four rows at a time, and sums of its own.
#pragma once

#include "probe.cuh"

namespace probe {

struct Eight {
  uint4 bits;
  __device__ static Eight load(const __half* from) { return {*reinterpret_cast<const uint4*>(from)}; }
  __device__ void unpack(float (&to)[8]) const {
    const __half2* const pairs = reinterpret_cast<const __half2*>(&bits);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 v = __half22float2(pairs[i]);
      to[2 * i] = v.x, to[2 * i + 1] = v.y;
    }
  }
  __device__ static void store(const float (&from)[8], __half* to) {
    uint4 packed;
    __half2* const pairs = reinterpret_cast<__half2*>(&packed);
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = __floats2half2_rn(from[2 * i], from[2 * i + 1]);
    *reinterpret_cast<uint4*>(to) = packed;
  }
};
__device__ inline float rounded(float v) { return __half2float(__float2half_rn(v)); }

/// partials: (blocks, Op::kSums, channels); block order and each block's rows are fixed.
template <class Op>
__global__ void __launch_bounds__(256, 2) rows_kernel(Op op, i64 rows, int channels, float* partials) {
  __shared__ float shared[256 * 8];
  const int lanes = channels / 8, together = 256 / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes, at = static_cast<int>(threadIdx.x) / lanes;
  float sums[Op::kSums > 0 ? Op::kSums : 1][8] = {};
  const typename Op::Kept kept = op.keep(lane * 8);
  const i64 step = i64{gridDim.x} * together;
  for (i64 row = i64{blockIdx.x} * together + at; row < rows; row += 4 * step) {
    typename Op::Loaded loaded[4];
#pragma unroll
    for (int r = 0; r < 4; ++r)
      if (row + r * step < rows) loaded[r] = op.load((row + r * step) * channels + lane * 8);
#pragma unroll
    for (int r = 0; r < 4; ++r)
      if (row + r * step < rows) op.use(kept, loaded[r], (row + r * step) * channels + lane * 8, sums);
  }
  for (int s = 0; s < Op::kSums; ++s) {
    __syncthreads();
#pragma unroll
    for (int n = 0; n < 8; ++n) shared[at * channels + lane * 8 + n] = sums[s][n];
    __syncthreads();
    for (int c = static_cast<int>(threadIdx.x); c < channels; c += 256) {
      float sum = 0;
      for (int t = 0; t < together; ++t) sum += shared[t * channels + c];
      partials[(i64{blockIdx.x} * Op::kSums + s) * channels + c] = sum;
    }
  }
}

}  // namespace probe
