// Batch normalisation on CUDA: statistics in two ordered stages, then one pass that normalises; backward the same way.
#include "bantam/kernels/batch_norm.h"
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

template <int N>
struct Affine {
  float mean[N], factor[N], shift[N];
};

/// y = (x - mean)·(inv_std·scale) + shift.
template <class T>
struct Normalise {
  const T* x;
  const float* scale;
  const float* shift;
  const float* mean;
  const float* spread;  ///< inv_std, or the variance
  bool spread_is_variance;
  float epsilon;
  T* y;

  template <int N>
  __device__ Affine<N> start(std::int64_t c, std::integral_constant<int, N>) const {
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
  template <int N>
  __device__ void apply(const Affine<N>& kept, std::int64_t at) const {
    float v[N];
    unpack<N>(x + at, v);
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] = (v[n] - kept.mean[n]) * kept.factor[n] + kept.shift[n];
    repack<N>(v, y + at);
  }
};

template <int N>
struct Statistics {
  float mean[N], inv_std[N];
};

/// Terms of Σ dy and Σ dy·x̂.
template <class T>
struct GradientTerms {
  const T* x;
  const T* dy;
  const float* mean;
  const float* inv_std;

  template <int N>
  __device__ Statistics<N> start(std::int64_t c, std::integral_constant<int, N>) const {
    Statistics<N> kept;
    load_floats(mean, c, 0.0f, kept.mean);
    load_floats(inv_std, c, 1.0f, kept.inv_std);
    return kept;
  }
  template <int N>
  __device__ void add(const Statistics<N>& kept, std::int64_t at, float (&sum)[2 * N]) const {
    float v[N], g[N];
    unpack<N>(x + at, v);
    unpack<N>(dy + at, g);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      sum[n] += g[n];
      sum[N + n] += g[n] * ((v[n] - kept.mean[n]) * kept.inv_std[n]);
    }
  }
};

/// Keeps the totals (Σ dy, then Σ dy·x̂) for the pass over dx, and gives them out as dshift and dscale where wanted.
struct FinishGradientSums {
  float* totals;
  float* dscale;
  float* dshift;
  std::int64_t channels;
  bool accumulate;

  __device__ void operator()(std::int64_t i, float sum) const {
    totals[i] = sum;
    float* to = i < channels ? dshift : dscale;
    const std::int64_t c = i < channels ? i : i - channels;
    if (to) to[c] = accumulate ? to[c] + sum : sum;
  }
};

template <int N>
struct InputGradientKept {
  float mean[N], inv_std[N], factor[N], shift_mean[N], scale_mean[N];
};

/// dx = scale·inv_std·(dy - Σdy/rows - x̂·Σ(dy·x̂)/rows).
template <class T>
struct InputGradient {
  const T* x;
  const T* dy;
  const float* scale;
  const float* mean;
  const float* inv_std;
  const float* totals;
  std::int64_t channels;
  float per_row;
  T* dx;

  template <int N>
  __device__ InputGradientKept<N> start(std::int64_t c, std::integral_constant<int, N>) const {
    InputGradientKept<N> kept;
    load_floats(mean, c, 0.0f, kept.mean);
    load_floats(inv_std, c, 1.0f, kept.inv_std);
    load_floats(scale, c, 1.0f, kept.factor);
    load_floats(totals, c, 0.0f, kept.shift_mean);
    load_floats(totals, channels + c, 0.0f, kept.scale_mean);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      kept.factor[n] *= kept.inv_std[n];
      kept.shift_mean[n] *= per_row;
      kept.scale_mean[n] *= per_row;
    }
    return kept;
  }
  template <int N>
  __device__ void apply(const InputGradientKept<N>& kept, std::int64_t at) const {
    float v[N], g[N];
    unpack<N>(x + at, v);
    unpack<N>(dy + at, g);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float normalised = (v[n] - kept.mean[n]) * kept.inv_std[n];
      g[n] = kept.factor[n] * (g[n] - kept.shift_mean[n] - normalised * kept.scale_mean[n]);
    }
    repack<N>(g, dx + at);
  }
};

}  // namespace

void batch_norm_forward_training(const Exec& exec, const BatchNormShape& shape, DType dtype, const void* x,
                                 const float* scale, const float* shift, float epsilon, RunningUpdate update,
                                 float* running_mean, float* running_variance, void* y, float* saved_mean,
                                 float* saved_inv_std, Workspace workspace) {
  if (shape.rows <= 0 || shape.channels <= 0) return;
  require_workspace(workspace, batch_norm_workspace_bytes(shape, dtype, DeviceKind::cuda),
                    "batch_norm_forward_training");
  const FinishStatistics finish{epsilon, update, running_mean, running_variance, saved_mean, saved_inv_std};
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* in = static_cast<const T*>(x);
    const Normalise<T> map{in, scale, shift, saved_mean, saved_inv_std, false, epsilon, static_cast<T*>(y)};
    with_pack<T>(
        [&](auto n) {
          constexpr int N = decltype(n)::value;
          channel_moments<T, N>(exec, shape.rows, shape.channels, in, static_cast<float*>(workspace.data), finish);
          map_rows<N>(exec, shape.rows, shape.channels, map);
        },
        shape.channels, x, y);
  });
}

void batch_norm_backward_training(const Exec& exec, const BatchNormShape& shape, DType dtype, const void* x,
                                  const void* dy, const float* scale, const float* saved_mean,
                                  const float* saved_inv_std, void* dx, float* dscale, float* dshift, bool accumulate,
                                  Workspace workspace) {
  if (shape.rows <= 0 || shape.channels <= 0) return;
  require_workspace(workspace, batch_norm_workspace_bytes(shape, dtype, DeviceKind::cuda),
                    "batch_norm_backward_training");
  float* totals = static_cast<float*>(workspace.data);  // (2, channels), then the parts' sums
  const FinishGradientSums finish{totals, dscale, dshift, shape.channels, accumulate};
  const float per_row = 1.0f / static_cast<float>(shape.rows);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *in = static_cast<const T*>(x), *g = static_cast<const T*>(dy);
    const InputGradient<T> map{
        in, g, scale, saved_mean, saved_inv_std, totals, shape.channels, per_row, static_cast<T*>(dx)};
    with_pack<T>(
        [&](auto n) {
          constexpr int N = decltype(n)::value;
          const GradientTerms<T> terms{in, g, saved_mean, saved_inv_std};
          sum_rows<N, 2>(exec, shape.rows, shape.channels, totals + 2 * shape.channels, terms, finish);
          if (dx) map_rows<N>(exec, shape.rows, shape.channels, map);
        },
        shape.channels, x, dy, dx);
  });
}

void batch_norm_forward_inference(const Exec& exec, const BatchNormShape& shape, DType dtype, const void* x,
                                  const float* scale, const float* shift, float epsilon, const float* running_mean,
                                  const float* running_variance, void* y) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Normalise<T> map{static_cast<const T*>(x), scale, shift,   running_mean,
                           running_variance,         true,  epsilon, static_cast<T*>(y)};
    with_pack<T>([&](auto n) { map_rows<decltype(n)::value>(exec, shape.rows, shape.channels, map); }, shape.channels,
                 x, y);
  });
}

}  // namespace bantam::kernels::cuda
