// A factor for each sample and channel on CUDA: blocks keep a sample and a column of channels, and walk down its
// positions.
#include "bantam/kernels/common/cuda/reduce/row_tiles.cuh"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/join/channel_scale.h"
#include "bantam/kernels/join/position_parts.h"

namespace bantam::kernels::cuda {
namespace {

/// The part of the shape that the kernels need. blockIdx.x counts samples times `columns` columns of blockDim.x packs,
/// blockIdx.y parts of the positions.
struct Places {
  std::int64_t positions, channels;
  unsigned columns;
};

/// A block's sample, and a thread's first channel.
struct Place {
  std::int64_t sample, c;
};

template <int N>
__device__ inline Place place_of(const Places& p) {
  return {blockIdx.x / p.columns, (std::int64_t{blockIdx.x % p.columns} * blockDim.x + threadIdx.x) * N};
}

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

template <class T, class F>
struct Forward {
  const T* x;
  const F *factor, *offset;
  T* y;
};

template <class T, class F, int N>
__global__ void __launch_bounds__(kTileThreads) scale_kernel(Places p, std::int64_t rounds, Forward<T, F> to) {
  const auto [sample, c] = place_of<N>(p);
  if (c >= p.channels) return;
  float factor[N], offset[N];
  load_factors<N>(to.factor, sample * p.channels + c, factor);
  load_factors<N>(to.offset, sample * p.channels + c, offset);
  const std::int64_t base = sample * p.positions * p.channels + c, last = p.positions - 1;
  const std::int64_t tile = std::int64_t{kRowsAtOnce} * blockDim.y, first = blockIdx.y * rounds * tile;
  const std::int64_t end = min(p.positions, first + rounds * tile);
  for (std::int64_t r = first + threadIdx.y; r < end; r += tile) {
    Pack<T, N> loaded[kRowsAtOnce];
#pragma unroll
    for (int k = 0; k < kRowsAtOnce; ++k)
      loaded[k] = load_pack<N>(to.x + base + min(r + k * std::int64_t{blockDim.y}, last) * p.channels);
#pragma unroll
    for (int k = 0; k < kRowsAtOnce; ++k) {
      const std::int64_t row = r + k * std::int64_t{blockDim.y};
      if (row >= p.positions) break;
      float v[N];
      unpack<N>(loaded[k], v);
#pragma unroll
      for (int n = 0; n < N; ++n) v[n] = v[n] * factor[n] + offset[n];
      repack<N>(v, to.y + base + row * p.channels);
    }
  }
}

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
  __device__ Kept<N> start(std::int64_t at) const {
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

/// Where sums go, times `share`: to partials (samples, parts, channels) where there is more than one part.
template <class F>
struct PositionSums {
  F* to;
  float* partials;
  float share;
};

/// The sums of one part of a sample's positions.
template <int N, class Terms, class F>
__global__ void __launch_bounds__(kTileThreads) position_sums_kernel(Places p, Terms terms, PositionSums<F> sums) {
  const auto [sample, c] = place_of<N>(p);
  float sum[N] = {};
  if (c < p.channels) {
    const auto kept = terms.template start<N>(sample * p.channels + c);
    const std::int64_t base = sample * p.positions * p.channels + c, last = p.positions - 1;
    const std::int64_t tile = std::int64_t{kRowsAtOnce} * blockDim.y;
    for (std::int64_t r = tile * blockIdx.y + threadIdx.y; r < p.positions; r += tile * gridDim.y) {
      decltype(terms.template load<N>(base)) loaded[kRowsAtOnce];
#pragma unroll
      for (int k = 0; k < kRowsAtOnce; ++k)
        loaded[k] = terms.template load<N>(base + min(r + k * std::int64_t{blockDim.y}, last) * p.channels);
#pragma unroll
      for (int k = 0; k < kRowsAtOnce; ++k) {
        const std::int64_t row = r + k * std::int64_t{blockDim.y};
        if (row < p.positions) terms.add(kept, loaded[k], base + row * p.channels, sum);
      }
    }
  }
  sum_over_block_rows(sum, [&](int n, int lane, float total) {
    const std::int64_t channel = (std::int64_t{blockIdx.x % p.columns} * blockDim.x + lane) * N + n;
    if (channel >= p.channels) return;
    if (sums.partials == nullptr)
      sums.to[sample * p.channels + channel] = from_float<F>(total * sums.share);
    else
      sums.partials[(sample * gridDim.y + blockIdx.y) * p.channels + channel] = total;
  });
}

/// to[n, c] = share·Σ partials[n, ·, c], in part order.
template <class F>
__global__ void add_sample_parts_kernel(PositionSums<F> sums, std::int64_t factors, std::int64_t channels,
                                        std::int64_t parts) {
  for (std::int64_t i = grid_thread(); i < factors; i += grid_threads()) {
    const std::int64_t sample = i / channels, c = i % channels;
    float sum = 0;
#pragma unroll 8
    for (std::int64_t part = 0; part < parts; ++part) sum += sums.partials[(sample * parts + part) * channels + c];
    sums.to[i] = from_float<F>(sum * sums.share);
  }
}

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

template <int N>
Places places(const ChannelScaleShape& s, const dim3& block) {
  return {s.positions, s.channels, blocks_for(s.channels / N, block.x)};
}

template <int N, class T, class F>
void launch_forward(const Exec& exec, const ChannelScaleShape& s, const Forward<T, F>& to) {
  const dim3 block = tile_block(s.channels / N);
  const Places p = places<N>(s, block);
  const std::int64_t wide = s.samples * p.columns;
  const std::int64_t tiles = blocks_for(s.positions, std::int64_t{kRowsAtOnce} * block.y);
  const std::int64_t most = std::clamp<std::int64_t>(kMapBlocks / wide, 1, kMaxGridY);
  const std::int64_t rounds = blocks_for(tiles, most);
  scale_kernel<T, F, N>
      <<<dim3(static_cast<unsigned>(wide), blocks_for(tiles, rounds)), block, 0, stream_of(exec)>>>(p, rounds, to);
  check_launch("scale_kernel");
}

template <int N, class Terms, class F>
void launch_sums(const Exec& exec, const ChannelScaleShape& s, const Terms& terms, const PositionSums<F>& sums) {
  const std::int64_t parts = position_parts(s, DeviceKind::cuda);
  const dim3 block = tile_block(s.channels / N);
  const Places p = places<N>(s, block);
  const dim3 grid(static_cast<unsigned>(s.samples * p.columns), static_cast<unsigned>(parts));
  position_sums_kernel<N><<<grid, block, 0, stream_of(exec)>>>(p, terms, sums);
  check_launch("position_sums_kernel");
  if (sums.partials == nullptr) return;
  add_sample_parts_kernel<<<stride_blocks(s.factors()), kMapThreads, 0, stream_of(exec)>>>(sums, s.factors(),
                                                                                           s.channels, parts);
  check_launch("add_sample_parts_kernel");
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
    with_pack<T>([&](auto n) { launch_forward<decltype(n)::value>(exec, s, to); }, s.channels, x, y,
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
    with_pack<T>([&](auto n) { launch_sums<decltype(n)::value>(exec, s, terms, sums); }, s.channels, inputs.x,
                 inputs.dy, to.dx, aligned_as_x(inputs.factor, s));
  });
}

void position_mean(const Exec& exec, const ChannelScaleShape& s, const void* x, float* mean, Workspace workspace) {
  if (s.factors() <= 0) return;
  const float share = 1.0f / static_cast<float>(std::max<std::int64_t>(s.positions, 1));
  const PositionSums<float> sums{mean, partials_in(s, workspace, "position_mean"), share};
  dispatch_floating(s.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_pack<T>(
        [&](auto n) { launch_sums<decltype(n)::value>(exec, s, ValueTerms<T>{static_cast<const T*>(x)}, sums); },
        s.channels, x);
  });
}

}  // namespace bantam::kernels::cuda
