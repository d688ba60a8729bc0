// Applies a batch norm to its input on the device, for the kernels that must get the same bits of it.
#pragma once

#include "bantam/kernels/common/cuda/reduce/row_tiles.cuh"

namespace bantam::kernels::cuda {

/// The values of N channels that z is computed with.
template <int N>
struct Affine {
  float mean[N], factor[N], shift[N];

  /// (x - mean)·(inv_std·scale) + shift: spelled out, so that forward and backward get the same bits.
  __device__ float z(int n, float x) const { return fmaf(x - mean[n], factor[n], shift[n]); }
};

/// Where the values of an Affine come from.
struct AffineSource {
  const float* scale;
  const float* shift;
  const float* mean;
  const float* spread;  ///< inv_std, or the variance
  bool spread_is_variance = false;
  float epsilon = 0;

  template <int N>
  __device__ Affine<N> load(std::int64_t c) const {
    Affine<N> kept;
    float s[N];
    load_floats(mean, c, 0.0f, kept.mean);
    load_floats(spread, c, 1.0f, kept.factor);
    load_floats(scale, c, 1.0f, s);
    load_floats(shift, c, 0.0f, kept.shift);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (spread_is_variance) kept.factor[n] = 1.0f / sqrtf(kept.factor[n] + epsilon);
      kept.factor[n] *= s[n];
    }
    return kept;
  }
};

}  // namespace bantam::kernels::cuda
