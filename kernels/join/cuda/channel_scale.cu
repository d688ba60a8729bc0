// A factor for each sample and channel on CUDA.
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/join/channel_scale.h"
#include "bantam/kernels/join/cuda/position_passes.cuh"
#include "bantam/kernels/join/position_parts.h"

namespace bantam::kernels::cuda {
namespace {

/// N factors; zeros where there are none. Those of x's type are aligned as x is.
template <int N, class F>
__device__ inline void load_factors(const F* from, std::int64_t at, float (&values)[N]) {
  if constexpr (std::is_same_v<F, float>) {
    load_floats<N>(from, at, 0.0f, values);
  } else {
    Pack<F, N> pack{};
    if (from != nullptr) pack = load_pack<N>(from + at);
    unpack<N>(pack, values);
  }
}

/// y = x·factor + offset.
template <class T, class F>
struct Forward {
  const T* x;
  const F *factor, *offset;
  T* y;

  template <int N>
  struct Kept {
    float factor[N], offset[N];
  };
  template <int N>
  __device__ Kept<N> start(std::int64_t at, std::int64_t) const {
    Kept<N> kept;
    load_factors<N>(factor, at, kept.factor);
    load_factors<N>(offset, at, kept.offset);
    return kept;
  }
  template <int N>
  __device__ Pack<T, N> load(std::int64_t at) const {
    return load_pack<N>(x + at);
  }
  template <int N>
  __device__ void apply(const Kept<N>& kept, const Pack<T, N>& loaded, std::int64_t at) const {
    float v[N];
    unpack<N>(loaded, v);
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] = v[n] * kept.factor[n] + kept.offset[n];
    repack<N>(v, y + at);
  }
};

/// Terms of the factors' gradient, and dx on the way.
template <class T, class F>
struct ScaleGradient {
  const T *x, *dy;
  const F* factor;
  T* dx;  // null: nobody wants it

  template <int N>
  struct Kept {
    float factor[N];
  };
  template <int N>
  struct Loaded {
    Pack<T, N> dy, x;
  };
  template <int N>
  __device__ Kept<N> start(std::int64_t at, std::int64_t) const {
    Kept<N> kept;
    load_factors<N>(dx != nullptr ? factor : nullptr, at, kept.factor);
    return kept;
  }
  template <int N>
  __device__ Loaded<N> load(std::int64_t at) const {
    return {load_pack<N>(dy + at), load_pack<N>(x + at)};
  }
  template <int N>
  __device__ void add(const Kept<N>& kept, const Loaded<N>& loaded, std::int64_t at, float (&sum)[N]) const {
    float g[N], v[N];
    unpack<N>(loaded.dy, g);
    unpack<N>(loaded.x, v);
#pragma unroll
    for (int n = 0; n < N; ++n) sum[n] += g[n] * v[n];
    if (dx == nullptr) return;
#pragma unroll
    for (int n = 0; n < N; ++n) g[n] *= kept.factor[n];
    repack<N>(g, dx + at);
  }
};

/// The values themselves.
template <class T>
struct PositionValues : ValueTerms<T> {
  template <int N>
  __device__ auto start(std::int64_t, std::int64_t c) const {
    return ValueTerms<T>::template start<N>(c);
  }
};

/// Calls call(tag of x, tag of the factors).
template <class Call>
void dispatch_types(const ChannelScaleShape& s, Call&& call) {
  dispatch_floating(s.dtype, [&](auto x) {
    if (s.factor_dtype == DType::float32) return call(x, std::type_identity<float>{});
    if (s.factor_dtype != s.dtype) throw DTypeError("channel_scale: the factors' type is neither x's nor float32");
    call(x, x);
  });
}

/// Factors of x's type are loaded in packs like it; others have no part in its choice.
const void* aligned_as_x(const void* factors, const ChannelScaleShape& s) {
  return s.factor_dtype == s.dtype ? factors : nullptr;
}

/// The workspace where there is more than one part.
float* partials_in(const ChannelScaleShape& s, Workspace workspace, const char* kernel) {
  require_workspace(workspace, channel_scale_workspace_bytes(s, DeviceKind::cuda), kernel);
  return position_parts(s, DeviceKind::cuda) > 1 ? static_cast<float*>(workspace.data) : nullptr;
}

}  // namespace

void channel_scale_forward(const Exec& exec, const ChannelScaleShape& s, const void* x, const void* factor,
                           const void* offset, void* y) {
  if (s.elements() <= 0) return;
  dispatch_types(s, [&](auto t, auto f) {
    using T = typename decltype(t)::type;
    using F = typename decltype(f)::type;
    const Forward<T, F> to{static_cast<const T*>(x), static_cast<const F*>(factor), static_cast<const F*>(offset),
                           static_cast<T*>(y)};
    with_pack<T>([&](auto n) { map_positions<decltype(n)::value>(exec, s, to); }, s.channels, x, y,
                 aligned_as_x(factor, s), aligned_as_x(offset, s));
  });
}

void channel_scale_grad(const Exec& exec, const ChannelScaleShape& s, const ChannelScaleInputs& inputs,
                        const ChannelScaleGradients& to, Workspace workspace) {
  if (s.factors() <= 0) return;
  if (to.dfactor == nullptr) return channel_scale_forward(exec, s, inputs.dy, inputs.factor, nullptr, to.dx);
  float* partials = partials_in(s, workspace, "channel_scale_grad");
  dispatch_types(s, [&](auto t, auto f) {
    using T = typename decltype(t)::type;
    using F = typename decltype(f)::type;
    const ScaleGradient<T, F> terms{static_cast<const T*>(inputs.x), static_cast<const T*>(inputs.dy),
                                    static_cast<const F*>(inputs.factor), static_cast<T*>(to.dx)};
    const PositionSums<F> sums{static_cast<F*>(to.dfactor), partials, 1.0f};
    with_pack<T>(
        [&](auto n) { sum_positions<decltype(n)::value>(exec, s, position_parts(s, DeviceKind::cuda), terms, sums); },
        s.channels, inputs.x, inputs.dy, to.dx, aligned_as_x(inputs.factor, s));
  });
}

void position_mean(const Exec& exec, const ChannelScaleShape& s, const void* x, float* mean, Workspace workspace) {
  if (s.factors() <= 0) return;
  const float share = 1.0f / static_cast<float>(std::max<std::int64_t>(s.positions, 1));
  const PositionSums<float> sums{mean, partials_in(s, workspace, "position_mean"), share};
  dispatch_floating(s.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_pack<T>(
        [&](auto n) {
          sum_positions<decltype(n)::value>(exec, s, position_parts(s, DeviceKind::cuda),
                                            PositionValues<T>{{static_cast<const T*>(x)}}, sums);
        },
        s.channels, x);
  });
}

}  // namespace bantam::kernels::cuda
