// Backward of batch norm on CUDA: the two sums over rows, then dx in a second pass over its inputs.
#pragma once

#include "bantam/kernels/common/cuda/reduce/row_sums.cuh"
#include "bantam/kernels/elementwise/cuda/activation_math.cuh"
#include "bantam/kernels/norm/batch_norm.h"
#include "bantam/kernels/norm/cuda/batch_norm_affine.cuh"

namespace bantam::kernels::cuda {

template <class T, int N>
struct TwoPacks {
  Pack<T, N> x, dy;
};

/// Adds a row's terms to Σ dz and Σ dz·(x - mean): spelled out, so that all kernels that make these sums get the same
/// bits.
__device__ inline void add_gradient_terms(float dz, float apart, float& sum, float& products) {
  sum = __fadd_rn(sum, dz);
  products = __fmaf_rn(dz, apart, products);
}

/// Terms of Σ dz and Σ dz·(x - mean).
template <class T, class Function>
struct GradientTerms {
  const T* x;
  const T* dy;
  AffineSource affine;
  Function f;

  template <int N>
  __device__ Affine<N> start(std::int64_t c) const {
    return affine.load<N>(c);
  }
  template <int N>
  __device__ TwoPacks<T, N> load(std::int64_t at) const {
    return {load_pack<N>(x + at), load_pack<N>(dy + at)};
  }
  template <int N>
  __device__ void add(const Affine<N>& kept, const TwoPacks<T, N>& loaded, std::int64_t, float (&sum)[2 * N]) const {
    float v[N], g[N], slopes[N];
    unpack<N>(loaded.x, v);
    unpack<N>(loaded.dy, g);
#pragma unroll
    for (int n = 0; n < N; ++n) slopes[n] = kept.z(n, v[n]);
    apply_slopes(f, slopes);
#pragma unroll
    for (int n = 0; n < N; ++n) add_gradient_terms(g[n] * slopes[n], v[n] - kept.mean[n], sum[n], sum[N + n]);
  }
};

/// Keeps a channel's totals (Σ dz, then Σ dz·x̂) for the pass over dx, and writes them as dshift and dscale where
/// wanted.
struct FinishGradientSums {
  const float* inv_std;
  float* totals;
  float* dscale;
  float* dshift;
  std::int64_t channels;
  bool accumulate;

  struct Begun {
    float inv_std, dscale, dshift;
  };
  __device__ Begun begin(std::int64_t c) const {
    return {inv_std[c], accumulate && dscale ? dscale[c] : 0.0f, accumulate && dshift ? dshift[c] : 0.0f};
  }
  __device__ void operator()(std::int64_t c, const Begun& begun, const double (&sums)[2]) const {
    const auto shift = static_cast<float>(sums[0]), scale = static_cast<float>(sums[1] * begun.inv_std);
    totals[c] = shift;
    totals[channels + c] = scale;
    if (dshift) dshift[c] = begun.dshift + shift;
    if (dscale) dscale[c] = begun.dscale + scale;
  }
};

/// dx = factor·dz + slope·(x - mean) + constant.
template <int N>
struct InputGradientKept {
  Affine<N> affine;
  float slope[N], constant[N];
};

/// dx = scale·inv_std·(dz - Σdz/rows - x̂·Σ(dz·x̂)/rows).
template <class T, class Function>
struct InputGradient {
  static constexpr std::int64_t kRounds = 2;  ///< tiles of a block: its preparation costs as much as a tile

  const T* x;
  const T* dy;
  AffineSource affine;
  Function f;
  const float* totals;
  std::int64_t channels;
  float per_row;
  T* dx;

  template <int N>
  __device__ InputGradientKept<N> start(std::int64_t c, std::integral_constant<int, N>) const {
    InputGradientKept<N> kept{affine.load<N>(c), {}, {}};
    float inv_std[N];
    load_floats(affine.spread, c, 1.0f, inv_std);
    load_floats(totals, c, 0.0f, kept.constant);
    load_floats(totals + channels, c, 0.0f, kept.slope);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      kept.constant[n] *= -per_row * kept.affine.factor[n];
      kept.slope[n] *= -per_row * kept.affine.factor[n] * inv_std[n];
    }
    return kept;
  }
  template <int N>
  __device__ TwoPacks<T, N> load(std::int64_t at) const {
    return {load_pack<N>(x + at), load_pack<N>(dy + at)};
  }
  template <int N>
  __device__ void apply(const InputGradientKept<N>& kept, const TwoPacks<T, N>& loaded, std::int64_t at) const {
    float v[N], g[N], slopes[N];
    unpack<N>(loaded.x, v);
    unpack<N>(loaded.dy, g);
#pragma unroll
    for (int n = 0; n < N; ++n) slopes[n] = kept.affine.z(n, v[n]);
    apply_slopes(f, slopes);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float dz = g[n] * slopes[n];
      g[n] = fmaf(kept.affine.factor[n], dz, fmaf(kept.slope[n], v[n] - kept.affine.mean[n], kept.constant[n]));
    }
    repack<N>(g, dx + at);
  }
};

/// The two sums of one norm, and dx from them. Workspace: the totals (2, channels), then the parts' sums.
class GradientSums {
 public:
  GradientSums(const BatchNormShape& shape, const float* inv_std, float* dscale, float* dshift, bool accumulate,
               Workspace workspace)
      : shape_(shape), totals_(static_cast<float*>(workspace.data)), finish_{inv_std, totals_,        dscale,
                                                                             dshift,  shape.channels, accumulate} {}

  /// Σ dz and Σ dz·(x - mean) of `terms`.
  template <int N, class Terms>
  void run(const Exec& exec, const Terms& terms) const {
    run<N>(exec, shape_.rows, terms);
  }
  /// The same of terms of several positions each, `rows` in all and no more than the norm's.
  template <int N, class Terms>
  void run(const Exec& exec, std::int64_t rows, const Terms& terms) const {
    row_sums<N, 2>(exec, rows, shape_.channels, totals_ + 2 * shape_.channels, terms, finish_);
  }
  /// The map that writes dx, to be launched after `run`.
  template <class T, class Function>
  InputGradient<T, Function> map(const T* x, const T* dy, const AffineSource& source, Function f, T* dx) const {
    return {x, dy, source, f, totals_, shape_.channels, 1.0f / static_cast<float>(shape_.rows), dx};
  }
  /// dx of the norm that `source` describes and f after it, right after `run`; kEarly: whose terms did not write x or
  /// dy.
  template <int N, bool kEarly, class T, class Function>
  void input_gradient(const Exec& exec, const T* x, const T* dy, const AffineSource& source, Function f, T* dx) const {
    map_rows<N, kEarly>(exec, shape_.rows, shape_.channels, map(x, dy, source, f, dx));
  }

 private:
  BatchNormShape shape_;
  float* totals_;
  FinishGradientSums finish_;
};

}  // namespace bantam::kernels::cuda
