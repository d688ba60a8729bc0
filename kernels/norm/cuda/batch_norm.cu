// Batch normalisation on CUDA: one pass over x for the statistics, and one that normalises; backward the same way.
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/norm/batch_norm.h"
#include "bantam/kernels/norm/cuda/batch_norm_gradient.cuh"
#include "bantam/kernels/norm/cuda/norm_statistics.cuh"

namespace bantam::kernels::cuda {
namespace {

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
    for (int n = 0; n < N; ++n) v[n] = kept.z(n, v[n]);
    apply_values(f, v);
    repack<N>(v, y + at);
  }
};

/// Writes dshift and dscale from Σ dz and Σ dz·(x - mean).
struct FinishInferenceSums {
  const float* variance;
  float epsilon;
  float* dscale;
  float* dshift;
  bool accumulate;

  struct Begun {
    float inv_std, dscale, dshift;
  };
  __device__ Begun begin(std::int64_t c) const {
    return {1.0f / sqrtf(variance[c] + epsilon), accumulate && dscale ? dscale[c] : 0.0f,
            accumulate && dshift ? dshift[c] : 0.0f};
  }
  __device__ void operator()(std::int64_t c, const Begun& begun, const double (&sums)[2]) const {
    if (dshift) dshift[c] = begun.dshift + static_cast<float>(sums[0]);
    if (dscale) dscale[c] = begun.dscale + static_cast<float>(sums[1] * begun.inv_std);
  }
};

/// dx = factor·dy·f'(z).
template <class T, class Function>
struct InferenceGradient {
  const T* x;
  const T* dy;
  AffineSource affine;
  Function f;
  T* dx;

  template <int N>
  __device__ Affine<N> start(std::int64_t c, std::integral_constant<int, N>) const {
    return affine.load<N>(c);
  }
  template <int N>
  __device__ TwoPacks<T, N> load(std::int64_t at) const {
    return {load_pack<N>(x + at), load_pack<N>(dy + at)};
  }
  template <int N>
  __device__ void apply(const Affine<N>& kept, const TwoPacks<T, N>& loaded, std::int64_t at) const {
    float slopes[N], g[N];
    unpack<N>(loaded.x, slopes);
    unpack<N>(loaded.dy, g);
#pragma unroll
    for (int n = 0; n < N; ++n) slopes[n] = kept.z(n, slopes[n]);
    apply_slopes(f, slopes);
#pragma unroll
    for (int n = 0; n < N; ++n) g[n] = kept.factor[n] * (g[n] * slopes[n]);
    repack<N>(g, dx + at);
  }
};

/// y = f(z) over x, both of `dtype`. kEarly: right after the kernel that computes the statistics.
template <bool kEarly>
void normalise(const Exec& exec, const BatchNormShape& shape, DType dtype, const void* x, ActivationFunction activation,
               const AffineSource& affine, void* y) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_activation(activation, [&](auto f) {
      const Normalise<T, decltype(f)> map{static_cast<const T*>(x), affine, f, static_cast<T*>(y)};
      with_pack<T>([&](auto n) { map_rows<decltype(n)::value, kEarly>(exec, shape.rows, shape.channels, map); },
                   shape.channels, x, y);
    });
  });
}

}  // namespace

void batch_norm_forward_training(const Exec& exec, const BatchNormShape& shape, DType dtype, const void* x,
                                 const BatchNormAffine& affine, void* y, const StatisticsOutput& statistics,
                                 Workspace workspace) {
  if (shape.rows <= 0 || shape.channels <= 0) return;
  require_workspace(workspace, batch_norm_workspace_bytes(shape, dtype, DeviceKind::cuda),
                    "batch_norm_forward_training");
  const FinishStatistics finish = FinishStatistics::of(statistics);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_pack<T>(
        [&](auto n) {
          channel_moments<T, decltype(n)::value>(exec, shape.rows, shape.channels, static_cast<const T*>(x),
                                                 static_cast<float*>(workspace.data), finish);
        },
        shape.channels, x);
  });
  if (y)
    normalise<true>(exec, shape, dtype, x, affine.activation,
                    {affine.scale, affine.shift, statistics.mean, statistics.inv_std}, y);
}

void batch_norm_apply(const Exec& exec, const BatchNormShape& shape, DType dtype, const void* x,
                      const BatchNormAffine& affine, const float* mean, const float* inv_std, void* y) {
  normalise<false>(exec, shape, dtype, x, affine.activation, {affine.scale, affine.shift, mean, inv_std}, y);
}

void batch_norm_backward_training(const Exec& exec, const BatchNormShape& shape, DType dtype, const NormOperand& norm,
                                  const void* dy, const NormGradients& to, Workspace workspace) {
  if (shape.rows <= 0 || shape.channels <= 0) return;
  require_workspace(workspace, batch_norm_workspace_bytes(shape, dtype, DeviceKind::cuda),
                    "batch_norm_backward_training");
  const GradientSums sums(shape, norm.inv_std, to.dscale, to.dshift, to.accumulate, workspace);
  const AffineSource source{norm.affine.scale, norm.affine.shift, norm.mean, norm.inv_std};
  const auto run = [&](auto tag, auto f) {
    using T = typename decltype(tag)::type;
    using Function = decltype(f);
    const T *in = static_cast<const T*>(norm.x), *g = static_cast<const T*>(dy);
    with_pack<T>(
        [&](auto n) {
          constexpr int N = decltype(n)::value;
          sums.template run<N>(exec, GradientTerms<T, Function>{in, g, source, f});
          if (to.dx) sums.template input_gradient<N, true>(exec, in, g, source, f, static_cast<T*>(to.dx));
        },
        shape.channels, norm.x, dy, to.dx);
  };
  dispatch_floating(dtype, [&](auto tag) { with_activation(norm.affine.activation, [&](auto f) { run(tag, f); }); });
}

void batch_norm_forward_inference(const Exec& exec, const BatchNormShape& shape, DType dtype, const void* x,
                                  const BatchNormAffine& affine, const RunningStatistics& running, void* y) {
  normalise<false>(exec, shape, dtype, x, affine.activation,
                   {affine.scale, affine.shift, running.mean, running.variance, true, running.epsilon}, y);
}

void batch_norm_backward_inference(const Exec& exec, const BatchNormShape& shape, DType dtype, const void* x,
                                   const BatchNormAffine& affine, const RunningStatistics& running, const void* dy,
                                   const NormGradients& to, Workspace workspace) {
  if (shape.rows <= 0 || shape.channels <= 0) return;
  require_workspace(workspace, batch_norm_inference_workspace_bytes(shape, to, DeviceKind::cuda),
                    "batch_norm_backward_inference");
  const bool sums = to.dscale != nullptr || to.dshift != nullptr;
  const AffineSource source{affine.scale, affine.shift, running.mean, running.variance, true, running.epsilon};
  const FinishInferenceSums finish{running.variance, running.epsilon, to.dscale, to.dshift, to.accumulate};
  const auto run = [&](auto tag, auto f) {
    using T = typename decltype(tag)::type;
    using Function = decltype(f);
    const T* g = static_cast<const T*>(dy);
    const T* in = x != nullptr ? static_cast<const T*>(x) : g;  // f' of none is 1 whatever z is
    with_pack<T>(
        [&](auto n) {
          constexpr int N = decltype(n)::value;
          if (sums)
            row_sums<N, 2>(exec, shape.rows, shape.channels, static_cast<float*>(workspace.data),
                           GradientTerms<T, Function>{in, g, source, f}, finish);
          if (to.dx)
            map_rows<N, false>(exec, shape.rows, shape.channels,
                               InferenceGradient<T, Function>{in, g, source, f, static_cast<T*>(to.dx)});
        },
        shape.channels, in, g, to.dx);
  };
  dispatch_floating(dtype, [&](auto tag) { with_activation(affine.activation, [&](auto f) { run(tag, f); }); });
}

}  // namespace bantam::kernels::cuda
