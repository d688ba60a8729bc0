// Batch normalisation on CUDA: one pass over x for the statistics, and one that normalises; backward the same way.
#include "bantam/kernels/batch_norm.h"
#include "bantam/kernels/cuda/activation_math.cuh"
#include "bantam/kernels/cuda/batch_norm_affine.cuh"
#include "bantam/kernels/cuda/moments.cuh"
#include "bantam/kernels/workspace_layout.h"

namespace bantam::kernels::cuda {
namespace {

/// Turns a channel's moments into saved and running statistics.
struct FinishStatistics {
  float epsilon;
  RunningUpdate update;
  float* running_mean;
  float* running_variance;
  float* saved_mean;
  float* saved_inv_std;

  __device__ static float moved(float running, double batch, double rate) {
    return static_cast<float>((1.0 - rate) * running + rate * batch);
  }
  __device__ void operator()(std::int64_t c, float origin, const Moments<double, 1>& moments) const {
    const double mean = origin + moments.mean[0], variance = moments.m2[0] / moments.count;
    saved_mean[c] = static_cast<float>(mean);
    saved_inv_std[c] = static_cast<float>(1.0 / sqrt(variance + epsilon));
    if (running_mean) running_mean[c] = moved(running_mean[c], mean, update.rate);
    const bool unbiased = update.unbiased && moments.count > 1;
    const double entering = unbiased ? moments.m2[0] / (moments.count - 1) : variance;
    if (running_variance) running_variance[c] = moved(running_variance[c], entering, update.rate);
  }
};

/// y = f(z).
template <class T, class Function>
struct Normalise {
  const T* x;
  AffineSource affine;
  Function f;
  T* y;

  template <int N>
  __device__ Affine<N> start(std::int64_t c, std::integral_constant<int, N>) const {
    return affine.load<N>(c);
  }
  template <int N>
  __device__ Pack<T, N> load(std::int64_t at) const {
    return load_pack<N>(x + at);
  }
  template <int N>
  __device__ void apply(const Affine<N>& kept, const Pack<T, N>& loaded, std::int64_t at) const {
    float v[N];
    unpack<N>(loaded, v);
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] = f(kept.z(n, v[n]));
    repack<N>(v, y + at);
  }
};

template <class T, int N>
struct TwoPacks {
  Pack<T, N> x, dy;
};

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
    float v[N], g[N];
    unpack<N>(loaded.x, v);
    unpack<N>(loaded.dy, g);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float dz = g[n] * f.derivative(kept.z(n, v[n]));
      sum[n] += dz;
      sum[N + n] += dz * (v[n] - kept.mean[n]);
    }
  }
};

/// Keeps a channel's totals (Σ dz, then Σ dz·x̂) for the pass over dx, and gives them out as dshift and dscale where
/// wanted.
struct FinishGradientSums {
  const float* inv_std;
  float* totals;
  float* dscale;
  float* dshift;
  std::int64_t channels;
  bool accumulate;

  __device__ void operator()(std::int64_t c, const double (&sums)[2]) const {
    const auto shift = static_cast<float>(sums[0]), scale = static_cast<float>(sums[1] * inv_std[c]);
    totals[c] = shift;
    totals[channels + c] = scale;
    if (dshift) dshift[c] = accumulate ? dshift[c] + shift : shift;
    if (dscale) dscale[c] = accumulate ? dscale[c] + scale : scale;
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
    float v[N], g[N];
    unpack<N>(loaded.x, v);
    unpack<N>(loaded.dy, g);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float dz = g[n] * f.derivative(kept.affine.z(n, v[n]));
      g[n] = fmaf(kept.affine.factor[n], dz, fmaf(kept.slope[n], v[n] - kept.affine.mean[n], kept.constant[n]));
    }
    repack<N>(g, dx + at);
  }
};

/// y = f(z) over x, both of `dtype`.
void normalise(const Exec& exec, const BatchNormShape& shape, DType dtype, const void* x, ActivationFunction activation,
               const AffineSource& affine, void* y) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_activation(activation, [&](auto f) {
      const Normalise<T, decltype(f)> map{static_cast<const T*>(x), affine, f, static_cast<T*>(y)};
      with_pack<T>([&](auto n) { map_rows<decltype(n)::value>(exec, shape.rows, shape.channels, map); }, shape.channels,
                   x, y);
    });
  });
}

}  // namespace

void batch_norm_forward_training(const Exec& exec, const BatchNormShape& shape, DType dtype, const void* x,
                                 const BatchNormAffine& affine, float epsilon, RunningUpdate update,
                                 float* running_mean, float* running_variance, void* y, float* saved_mean,
                                 float* saved_inv_std, Workspace workspace) {
  if (shape.rows <= 0 || shape.channels <= 0) return;
  require_workspace(workspace, batch_norm_workspace_bytes(shape, dtype, DeviceKind::cuda),
                    "batch_norm_forward_training");
  const FinishStatistics finish{epsilon, update, running_mean, running_variance, saved_mean, saved_inv_std};
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_pack<T>(
        [&](auto n) {
          channel_moments<T, decltype(n)::value>(exec, shape.rows, shape.channels, static_cast<const T*>(x),
                                                 static_cast<float*>(workspace.data), finish);
        },
        shape.channels, x);
  });
  if (y) batch_norm_apply(exec, shape, dtype, x, affine, saved_mean, saved_inv_std, y);
}

void batch_norm_apply(const Exec& exec, const BatchNormShape& shape, DType dtype, const void* x,
                      const BatchNormAffine& affine, const float* mean, const float* inv_std, void* y) {
  normalise(exec, shape, dtype, x, affine.activation, {affine.scale, affine.shift, mean, inv_std}, y);
}

void batch_norm_backward_training(const Exec& exec, const BatchNormShape& shape, DType dtype, const void* x,
                                  const void* dy, const BatchNormAffine& affine, const float* saved_mean,
                                  const float* saved_inv_std, void* dx, float* dscale, float* dshift, bool accumulate,
                                  Workspace workspace) {
  if (shape.rows <= 0 || shape.channels <= 0) return;
  require_workspace(workspace, batch_norm_workspace_bytes(shape, dtype, DeviceKind::cuda),
                    "batch_norm_backward_training");
  float* totals = static_cast<float*>(workspace.data);  // (2, channels), then the parts' sums
  const FinishGradientSums finish{saved_inv_std, totals, dscale, dshift, shape.channels, accumulate};
  const AffineSource source{affine.scale, affine.shift, saved_mean, saved_inv_std};
  const float per_row = 1.0f / static_cast<float>(shape.rows);
  const auto run = [&](auto tag, auto f) {
    using T = typename decltype(tag)::type;
    using Function = decltype(f);
    const T *in = static_cast<const T*>(x), *g = static_cast<const T*>(dy);
    const InputGradient<T, Function> map{in, g, source, f, totals, shape.channels, per_row, static_cast<T*>(dx)};
    with_pack<T>(
        [&](auto n) {
          constexpr int N = decltype(n)::value;
          const GradientTerms<T, Function> terms{in, g, source, f};
          row_sums<N, 2>(exec, shape.rows, shape.channels, totals + 2 * shape.channels, terms, finish);
          if (dx) map_rows<N>(exec, shape.rows, shape.channels, map);
        },
        shape.channels, x, dy, dx);
  };
  dispatch_floating(dtype, [&](auto tag) { with_activation(affine.activation, [&](auto f) { run(tag, f); }); });
}

void batch_norm_forward_inference(const Exec& exec, const BatchNormShape& shape, DType dtype, const void* x,
                                  const BatchNormAffine& affine, float epsilon, const float* running_mean,
                                  const float* running_variance, void* y) {
  normalise(exec, shape, dtype, x, affine.activation,
            {affine.scale, affine.shift, running_mean, running_variance, true, epsilon}, y);
}

}  // namespace bantam::kernels::cuda
