// A batch norm and its relu or relu6 as they are applied to what a kernel reads.
#pragma once

#include "bantam/kernels/norm/batch_norm_add.h"
#include "bantam/kernels/norm/cuda/batch_norm_affine.cuh"

namespace bantam::kernels::cuda {

/// f(z) = z between 0 and `top`, else the nearer of them: relu where top is infinite, relu6. NaN stays NaN.
struct Clamp {
  float top;

  static Clamp of(ActivationFunction f) { return {f.kind == Activation::relu6 ? 6.0f : INFINITY}; }
  __device__ bool rises(float z) const { return !(z <= 0.0f) && !(z >= top); }

  /// values = f(values rounded to T), or zeros where not `wanted`.
  template <class T, int N>
  __device__ void round_and_clamp(float (&values)[N], bool wanted) const {
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      if constexpr (kPairs<T, N>) {  // rounding and clamping commute
        const __half2 low = __float2half2_rn(0.0f), high = __float2half2_rn(top);
        __half2 pair = __hmin2_nan(__hmax2_nan(__floats2half2_rn(values[n], values[n + 1]), low), high);
        if (!wanted) pair = low;
        values[n] = __low2float(pair);
        values[n + 1] = __high2float(pair);
      } else {
        values[n] = one<T>(values[n], wanted);
        if (n + 1 < N) values[n + 1] = one<T>(values[n + 1], wanted);
      }
    }
  }

 private:
#if __CUDA_ARCH__ >= 800
  template <class T, int N>
  static constexpr bool kPairs = std::is_same_v<T, __half>&& N % 2 == 0;
#else
  template <class T, int N>
  static constexpr bool kPairs = false;
#endif
  template <class T>
  __device__ float one(float value, bool wanted) const {
    const float z = to_float(from_float<T>(value));
    return !wanted || z < 0.0f ? 0.0f : z > top ? top : z;
  }
};

inline AffineSource affine_of(const NormOperand& operand) {
  return {operand.affine.scale, operand.affine.shift, operand.mean, operand.inv_std};
}

}  // namespace bantam::kernels::cuda
