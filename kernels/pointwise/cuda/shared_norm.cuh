// A batch norm applied to 16-bit values that lie in shared memory, with its vectors beside them.
#pragma once

#include "bantam/kernels/norm/cuda/clamped_norm.cuh"

namespace bantam::kernels::cuda {

/// A norm's vectors in shared memory.
struct SharedNorm {
  float* mean;
  float* factor;
  float* shift;

  static constexpr int kVectors = 3;
  static __device__ SharedNorm at(void* shared, int channels) {
    float* const begin = static_cast<float*>(shared);
    return {begin, begin + channels, begin + 2 * channels};
  }
  __device__ void fill(const AffineSource& norm, int channels) const {
    for (int c = static_cast<int>(threadIdx.x); c < channels; c += static_cast<int>(blockDim.x)) {
      const Affine<1> affine = norm.load<1>(c);
      mean[c] = affine.mean[0];
      factor[c] = affine.factor[0];
      shift[c] = affine.shift[0];
    }
  }
  __device__ Affine<8> load(int c) const {
    Affine<8> affine;
    unpack<8>(mean + c, affine.mean);
    unpack<8>(factor + c, affine.factor);
    unpack<8>(shift + c, affine.shift);
    return affine;
  }
};

/// Eight values in shared memory, normalised and clamped in place: the bits of batch_norm_apply.
template <class T>
__device__ inline void normalise_in_place(T* place, const Affine<8>& norm, Clamp clamp) {
  float values[8];
  unpack<8>(place, values);
#pragma unroll
  for (int n = 0; n < 8; ++n) values[n] = norm.z(n, values[n]);
  clamp.template round_and_clamp<T>(values, true);
  repack<8>(values, place);
}

}  // namespace bantam::kernels::cuda
