// A factor a channel on CUDA: channels in vectors; its gradient's sums over rows are made in the pass that writes dx.
#include "bantam/kernels/common/cuda/reduce/row_sums.cuh"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/elementwise/channel_factor.h"
#include "bantam/kernels/elementwise/elementwise.h"

namespace bantam::kernels::cuda {
namespace {

/// Keeps the factors of a thread's N channels in registers, loaded once for all rows.
template <int N>
struct KeptFactors {
  float factor[N];
};

struct FactorSource {
  const float* s;
  bool shared;

  template <int N>
  __device__ KeptFactors<N> load(std::int64_t c) const {
    KeptFactors<N> kept;
    if (shared) {
#pragma unroll
      for (int n = 0; n < N; ++n) kept.factor[n] = *s;
    } else {
      load_floats(s, c, 1.0f, kept.factor);
    }
    return kept;
  }
};

template <bool kNegativeOnly>
__device__ inline bool is_scaled(float x) {
  return !kNegativeOnly || !(x > 0.0f);
}

template <bool kNegativeOnly>
struct ScaleChannels : FactorSource {
  template <int N>
  __device__ void apply(const KeptFactors<N>& kept, float (&v)[N]) const {
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] *= is_scaled<kNegativeOnly>(v[n]) ? kept.factor[n] : 1.0f;
  }
};

/// Loads of x and dy.
template <class T, int N>
struct LoadedGradient {
  Pack<T, N> x, dy;
};

/// Terms of Σ x·dy where x is scaled; dx is written beside them. As a map, it writes dx alone.
template <class T, bool kNegativeOnly>
struct ScaleGradient {
  const T *x, *dy;
  FactorSource factors;
  T* dx;

  template <int N>
  __device__ KeptFactors<N> start(std::int64_t c, std::integral_constant<int, N> = {}) const {
    return factors.load<N>(c);
  }
  template <int N>
  __device__ LoadedGradient<T, N> load(std::int64_t at) const {
    return {load_pack<N>(x + at), load_pack<N>(dy + at)};
  }
  template <int N>
  __device__ void add(const KeptFactors<N>& kept, const LoadedGradient<T, N>& loaded, std::int64_t at,
                      float (&sum)[N]) const {
    float v[N], g[N];
    unpack<N>(loaded.x, v);
    unpack<N>(loaded.dy, g);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const bool scaled = is_scaled<kNegativeOnly>(v[n]);
      sum[n] += scaled ? v[n] * g[n] : 0.0f;
      g[n] *= scaled ? kept.factor[n] : 1.0f;
    }
    if (dx != nullptr) repack<N>(g, dx + at);
  }
  template <int N>
  __device__ void apply(const KeptFactors<N>& kept, const LoadedGradient<T, N>& loaded, std::int64_t at) const {
    float unused[N] = {};
    add(kept, loaded, at, unused);
  }
};

/// The sum of all channels' sums, by one block, in a fixed order.
__global__ void __launch_bounds__(kTileThreads)
    sum_channels_kernel(const float* totals, std::int64_t channels, float* ds, bool accumulate) {
  __shared__ double sums[kTileThreads];
  double sum = 0;
  for (std::int64_t c = threadIdx.x; c < channels; c += kTileThreads) sum += totals[c];
  sums[threadIdx.x] = sum;
  for (unsigned step = kTileThreads / 2; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
  }
  if (threadIdx.x == 0) *ds = static_cast<float>(sums[0]) + (accumulate ? *ds : 0.0f);
}

/// Calls call(tag, std::bool_constant) with the type and shape.negative_only.
template <class Call>
void with_rule(const ChannelFactorShape& shape, DType dtype, Call&& call) {
  dispatch_floating(dtype, [&](auto tag) {
    if (shape.negative_only)
      call(tag, std::true_type{});
    else
      call(tag, std::false_type{});
  });
}

}  // namespace

void channel_factor_forward(const Exec& exec, const ChannelFactorShape& shape, DType dtype, const void* x,
                            const float* s, void* y) {
  with_rule(shape, dtype, [&](auto tag, auto negative_only) {
    using T = typename decltype(tag)::type;
    const ChannelMap<T, ScaleChannels<decltype(negative_only)::value>> map{
        static_cast<const T*>(x), {{s, shape.shared}}, static_cast<T*>(y)};
    with_pack<T>([&](auto n) { map_rows<decltype(n)::value>(exec, shape.rows, shape.channels, map); }, shape.channels,
                 x, y);
  });
}

void channel_factor_grad(const Exec& exec, const ChannelFactorShape& shape, DType dtype,
                         const ChannelFactorGradInputs& in, const ChannelFactorGradients& to, Workspace workspace) {
  if (shape.channels <= 0) return;
  if (shape.rows <= 0) {
    if (to.ds != nullptr && !to.accumulate) fill(exec, shape.factors(), DType::float32, 0.0f, to.ds);
    return;
  }
  require_workspace(workspace, channel_factor_grad_workspace_bytes(shape, DeviceKind::cuda), "channel_factor_grad");
  float* totals = static_cast<float*>(workspace.data);  // (channels), then the parts' sums
  const FinishSum finish = shape.shared ? FinishSum{totals, false} : FinishSum{to.ds, to.accumulate};
  with_rule(shape, dtype, [&](auto tag, auto negative_only) {
    using T = typename decltype(tag)::type;
    const ScaleGradient<T, decltype(negative_only)::value> gradient{
        static_cast<const T*>(in.x), static_cast<const T*>(in.dy), {in.s, shape.shared}, static_cast<T*>(to.dx)};
    with_pack<T>(
        [&](auto n) {
          constexpr int N = decltype(n)::value;
          if (to.ds == nullptr) return map_rows<N>(exec, shape.rows, shape.channels, gradient);
          row_sums<N, 1>(exec, shape.rows, shape.channels, totals + shape.channels, gradient, finish);
        },
        shape.channels, in.x, in.dy, to.dx);
  });
  if (to.ds == nullptr || !shape.shared) return;
  sum_channels_kernel<<<1, kTileThreads, 0, stream_of(exec)>>>(totals, shape.channels, to.ds, to.accumulate);
  check_launch("sum_channels_kernel");
}

}  // namespace bantam::kernels::cuda
