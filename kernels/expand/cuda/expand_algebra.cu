// The algebra around the GEMMs of an expanding convolution on CUDA: the shifted input and its moments, statistics from
// them, and from P = dzᵀ·ã the gradients of weights and vectors and the operands of the input gradient's GEMM. By wgmma
// kernels where they support the call, else by GEMMs in float32 and the simple kernels below.
#include "bantam/kernels/common/cuda/reduce/row_sums.cuh"
#include "bantam/kernels/elementwise/elementwise.h"
#include "bantam/kernels/elementwise/piecewise.h"
#include "bantam/kernels/expand/cuda/expand_algebra.cuh"
#include "bantam/kernels/expand/cuda/expand_reduce.h"
#include "bantam/kernels/expand/cuda/warpgroup_expand.h"
#include "bantam/kernels/norm/cuda/clamped_norm.cuh"
#include "bantam/kernels/norm/cuda/norm_statistics.cuh"

namespace bantam::kernels::cuda {
namespace {

/// The terms of Σã, which also write ã.
template <class T>
struct CentreTerms {
  const T* x;
  CentreRule rule;
  T* centred;

  template <int N>
  __device__ Centred<N> start(std::int64_t c) const {
    return rule.load<N>(c);
  }
  template <int N>
  __device__ Pack<T, N> load(std::int64_t at) const {
    return load_pack<N>(x + at);
  }
  template <int N>
  __device__ void add(const Centred<N>& kept, const Pack<T, N>& loaded, std::int64_t at, float (&sum)[N]) const {
    float v[N];
    unpack<N>(loaded, v);
    rule.apply(kept, v);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      v[n] = to_float(from_float<T>(v[n]));
      sum[n] += v[n];
    }
    repack<N>(v, centred + at);
  }
};
struct FinishMean {
  float* to;
  double rows;

  __device__ int begin(std::int64_t) const { return 0; }
  __device__ void operator()(std::int64_t c, int, const double (&sum)[1]) const {
    to[c] = static_cast<float>(sum[0] / rows);
  }
};

/// The Gram matrix becomes the covariance.
__global__ void covariance_kernel(float* gram, const float* mean, int in, float rows) {
  const auto i = static_cast<int>(grid_thread());
  if (i < in * in) gram[i] = fmaf(-mean[i / in], mean[i % in], gram[i] / rows);
}

constexpr int kRowWarps = 4;  // of a block, each with a row of W

/// Statistics of c3's channels: a warp a channel.
template <class T>
__global__ void __launch_bounds__(kRowWarps * 32)
    statistics_kernel(ExpandShape s, const T* w, ExpandMoments moments, const float* scale, const float* shift,
                      const float* products, FinishStatistics finish) {
  const std::int64_t o = std::int64_t{blockIdx.x} * kRowWarps + threadIdx.x / 32;
  if (o >= s.out) return;
  double mean = 0, variance = 0, moved = 0;
  for (std::int64_t c = threadIdx.x % 32; c < s.in; c += 32) {
    const double v = to_float(w[o * s.in + c]);
    mean += v * moments.mean[c];
    moved += v * expand_origin(scale ? scale[c] : 1.0f, shift ? shift[c] : 0.0f);
    variance += v * products[o * s.in + c];
  }
  mean = warp_sum(mean), moved = warp_sum(moved), variance = warp_sum(variance);
  if (threadIdx.x % 32 != 0) return;
  const auto rows = static_cast<double>(s.rows);
  const Moments<double, 1> batch{rows, {mean + moved}, {fmax(variance, 0.0) * rows}};
  finish(o, finish.begin(o), 0.0f, batch);
  finish.saved_mean[o] = static_cast<float>(mean);  // of ã·wᵀ, which the kernels normalise
}

/// What backward computes from P and Σdz, by channel of c3.
template <class T>
struct ChannelGradients {
  ExpandShape s;
  const T* w;
  const float *scale, *inv_std, *mean, *products, *p, *dz_sums;
  float *dw, *dscale, *dshift;
  bool accumulate_w, accumulate_after;
  float* weighted;  ///< (out, in): diag(k·r·m)·W
  float *slopes, *widest, *shares;
  T* stacked;  ///< k⊙W/ρ: (out, in)
  float* scales;

  __device__ float factor(std::int64_t o) const { return (scale ? scale[o] : 1.0f) * inv_std[o]; }
};

/// m = (r/N)·Σ W⊙P̂, P̂ = P - Σdz⊗d; dγ = N·m, dβ = Σdz, dW = k⊙(P̂ - N·m·r·T). A warp a channel.
template <class T>
__global__ void __launch_bounds__(kRowWarps * 32) channel_gradients_kernel(ChannelGradients<T> g) {
  float most = 0;
  for (std::int64_t o = threadIdx.x; o < g.s.out; o += kRowWarps * 32) most = fmaxf(most, fabsf(g.factor(o)));
  const float rho = 1.0f / scale_to(block_max(most), 0);  // a power of two that no |k| exceeds
  if (blockIdx.x == 0 && threadIdx.x == 0) g.scales[1] = rho;
  const std::int64_t o = std::int64_t{blockIdx.x} * kRowWarps + threadIdx.x / 32;
  if (o >= g.s.out) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float sum = g.dz_sums[o], r = g.inv_std[o], k = g.factor(o);
  double product = 0;
  float widest = 0;
  for (std::int64_t c = lane; c < g.s.in; c += 32) {
    const float v = to_float(g.w[o * g.s.in + c]);
    product += static_cast<double>(v) * fmaf(-sum, g.mean[c], g.p[o * g.s.in + c]);
    widest = fmaxf(widest, fabsf(v));
  }
  product = warp_sum(product), widest = warp_max(widest);
  const auto dscale = static_cast<float>(product * r);
  const float along = dscale * r, slope = k * along / static_cast<float>(g.s.rows);
  for (std::int64_t c = lane; c < g.s.in; c += 32) {
    const std::int64_t at = o * g.s.in + c;
    const float v = to_float(g.w[at]), centred = fmaf(-sum, g.mean[c], g.p[at]);
    const float dw = k * fmaf(-along, g.products[at], centred);
    if (g.dw) g.dw[at] = g.accumulate_w ? g.dw[at] + dw : dw;
    g.weighted[at] = slope * v;
    g.stacked[at] = from_float<T>(k / rho * v);
  }
  if (lane != 0) return;
  if (g.dscale) g.dscale[o] = g.accumulate_after ? g.dscale[o] + dscale : dscale;
  if (g.dshift) g.dshift[o] = g.accumulate_after ? g.dshift[o] + sum : sum;
  g.slopes[o] = slope, g.widest[o] = widest, g.shares[o] = sum / static_cast<float>(g.s.rows);
}

/// -M times a power of two that brings its largest possible value, Σ|slope|·widest², below 2^15; and scales[0].
template <class T>
__global__ void __launch_bounds__(256) stack_slope_kernel(ExpandShape s, const float* slope, const float* slopes,
                                                          const float* widest, T* stacked, float* scales) {
  float bound = 0;
  for (std::int64_t o = threadIdx.x; o < s.out; o += 256) bound += fabsf(slopes[o]) * widest[o] * widest[o];
  const float by = scale_to(block_sum(bound), 15);
  if (blockIdx.x == 0 && threadIdx.x == 0) scales[0] = 1.0f / (by * scales[1]);
  for (std::int64_t i = grid_thread(); i < s.in * s.in; i += grid_threads()) stacked[i] = from_float<T>(-slope[i] * by);
}

/// row = d·M - (Σdz/N)·(k⊙W), from both as they are rounded, so that their rounding has no mean. Blocks of 32 channels.
template <class T>
__global__ void __launch_bounds__(kTileThreads)
    constant_row_kernel(ExpandShape s, const T* stacked, const float* scales, const float* mean, const float* shares,
                        float* row) {
  const std::int64_t c = std::int64_t{blockIdx.x} * 32 + threadIdx.x;
  float sum[1] = {};
  const float narrow = -scales[0] * scales[1], wide = -scales[1];
  for (std::int64_t i = threadIdx.y; i < s.in; i += kWarps)
    sum[0] = fmaf(mean[i] * narrow, to_float(stacked[i * s.in + c]), sum[0]);
  for (std::int64_t o = threadIdx.y; o < s.out; o += kWarps)
    sum[0] = fmaf(shares[o] * wide, to_float(stacked[(s.in + o) * s.in + c]), sum[0]);
  sum_over_block_rows(sum, [&](int, int x, float total) { row[std::int64_t{blockIdx.x} * 32 + x] = total; });
}

/// Terms of Σdz, and dz itself.
template <class T>
struct TotalTerms {
  const T *dy, *other;
  const std::uint8_t* mask;
  float below;
  T* dz;

  template <int N>
  struct Loaded {
    Pack<T, N> dy, other;
    unsigned bits;
  };
  template <int N>
  __device__ std::integral_constant<int, N> start(std::int64_t) const {
    return {};
  }
  template <int N>
  __device__ Loaded<N> load(std::int64_t at) const {
    Loaded<N> loaded{load_pack<N>(dy + at), {}, ~0u};
    if (other != nullptr) loaded.other = load_pack<N>(other + at);
    if (mask != nullptr) loaded.bits = static_cast<unsigned>(mask[at / 8]) >> (at % 8);
    return loaded;
  }
  template <int N>
  __device__ void add(std::integral_constant<int, N>, const Loaded<N>& loaded, std::int64_t at, float (&sum)[N]) const {
    float g[N], more[N];
    unpack<N>(loaded.dy, g);
    unpack<N>(loaded.other, more);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (other != nullptr) g[n] = to_float(from_float<T>(g[n] + more[n]));
      g[n] = to_float(from_float<T>(g[n] * ((loaded.bits >> n) & 1u ? 1.0f : below)));
      sum[n] += g[n];
    }
    repack<N>(g, dz + at);
  }
};

/// The gradients from P, and the operands of the input gradient's GEMM.
template <class T>
void gradients_by_gemms(const Exec& exec, const ExpandShape& s, DType dtype, const ExpandInputs& in,
                        const ExpandGradients& to, const ExpandBackwardArrays& arrays) {
  cast(exec, s.out * s.in, dtype, in.w, DType::float32, arrays.weights);
  T* const stacked = static_cast<T*>(arrays.stacked);
  float *const slopes = arrays.vectors, *const widest = slopes + s.out, *const shares = widest + s.out;
  const ChannelGradients<T> gradients{.s = s,
                                      .w = static_cast<const T*>(in.w),
                                      .scale = in.product.affine.scale,
                                      .inv_std = in.product.inv_std,
                                      .mean = in.moments.mean,
                                      .products = in.products,
                                      .p = arrays.p,
                                      .dz_sums = in.dz_sums,
                                      .dw = to.dw,
                                      .dscale = to.dscale,
                                      .dshift = to.dshift,
                                      .accumulate_w = to.accumulate_w,
                                      .accumulate_after = to.accumulate_after,
                                      .weighted = arrays.weighted,
                                      .slopes = slopes,
                                      .widest = widest,
                                      .shares = shares,
                                      .stacked = stacked + s.in * s.in,
                                      .scales = arrays.scales};
  channel_gradients_kernel<T><<<blocks_for(s.out, kRowWarps), kRowWarps * 32, 0, stream_of(exec)>>>(gradients);
  check_launch("channel_gradients_kernel");
  matmul(exec, expand_slope_product(s), DType::float32, arrays.weighted, arrays.weights, {.data = arrays.slope},
         arrays.rest);
  stack_slope_kernel<T><<<stride_blocks(s.in * s.in / 4), 256, 0, stream_of(exec)>>>(s, arrays.slope, slopes, widest,
                                                                                     stacked, arrays.scales);
  check_launch("stack_slope_kernel");
  constant_row_kernel<T><<<blocks_for(s.in, 32), dim3(32, kWarps), 0, stream_of(exec)>>>(
      s, stacked, arrays.scales, in.moments.mean, shares, arrays.row);
  check_launch("constant_row_kernel");
}

}  // namespace

void expand_centre(const Exec& exec, const ExpandShape& s, DType dtype, const NormOperand& x, void* centred,
                   const ExpandMoments& moments, Workspace workspace) {
  require_workspace(workspace, expand_workspace_bytes(s, dtype, DeviceKind::cuda), "expand_centre");
  if (warpgroup_expand_centre(exec, s, dtype, x, centred, moments, workspace)) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const CentreRule rule{affine_of(x)};
    const T* const from = static_cast<const T*>(x.x);
    with_pack<T>(
        [&](auto n) {
          constexpr int N = decltype(n)::value;
          if (moments.mean == nullptr)
            return map_rows<N>(exec, s.rows, s.in, ChannelMap<T, CentreRule>{from, rule, static_cast<T*>(centred)});
          row_sums<N, 1>(exec, s.rows, s.in, static_cast<float*>(workspace.data),
                         CentreTerms<T>{from, rule, static_cast<T*>(centred)},
                         FinishMean{moments.mean, static_cast<double>(s.rows)});
        },
        s.in, x.x, centred);
  });
  if (moments.mean == nullptr) return;
  matmul(exec, expand_gram_product(s), dtype, centred, centred, {.data = moments.covariance}, workspace);
  covariance_kernel<<<blocks_for(s.in * s.in, 256), 256, 0, stream_of(exec)>>>(
      moments.covariance, moments.mean, static_cast<int>(s.in), static_cast<float>(s.rows));
  check_launch("covariance_kernel");
}

void expand_statistics(const Exec& exec, const ExpandShape& s, DType dtype, const void* w, const ExpandMoments& moments,
                       const BatchNormAffine& before, const StatisticsOutput& statistics, float* products,
                       Workspace workspace) {
  require_workspace(workspace, expand_workspace_bytes(s, dtype, DeviceKind::cuda), "expand_statistics");
  if (warpgroup_expand_statistics(exec, s, dtype, w, moments, before, statistics, products)) return;
  const ExpandStatisticsScratch scratch(s, DeviceKind::cuda);
  WorkspaceCutter cutter(workspace);
  float* const weights = cutter.cut<float>(scratch.weights);
  cast(exec, s.out * s.in, dtype, w, DType::float32, weights);
  matmul(exec, expand_statistics_product(s), DType::float32, weights, moments.covariance, {.data = products},
         {cutter.cut<char>(scratch.product), scratch.product});
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    statistics_kernel<T><<<blocks_for(s.out, kRowWarps), kRowWarps * 32, 0, stream_of(exec)>>>(
        s, static_cast<const T*>(w), moments, before.scale, before.shift, products, FinishStatistics::of(statistics));
    check_launch("statistics_kernel");
  });
}

void sum_gradient_totals(const Exec& exec, const BatchNormShape& shape, DType dtype, const SumGradient& gradient,
                         void* dz, float* sums, Workspace workspace) {
  require_workspace(workspace, batch_norm_workspace_bytes(shape, dtype, DeviceKind::cuda), "sum_gradient_totals");
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const TotalTerms<T> terms{static_cast<const T*>(gradient.dy), static_cast<const T*>(gradient.other), gradient.mask,
                              PiecewiseLinear::of(gradient.f).below, static_cast<T*>(dz)};
    with_pack<T>(
        [&](auto n) {
          row_sums<decltype(n)::value, 1>(exec, shape.rows, shape.channels, static_cast<float*>(workspace.data), terms,
                                          FinishSum{sums, false});
        },
        shape.channels, gradient.dy, gradient.other, dz);
  });
}

void expand_backward(const Exec& exec, const ExpandShape& s, DType dtype, const ExpandInputs& in,
                     const ExpandGradients& to, Workspace workspace) {
  require_workspace(workspace, expand_workspace_bytes(s, dtype, DeviceKind::cuda), "expand_backward");
  const ExpandBackwardArrays arrays(ExpandBackwardScratch(s, dtype, DeviceKind::cuda), workspace);
  matmul(exec, pointwise_grad_weight_product(s), dtype, in.dz, in.product.x, {.data = arrays.p}, arrays.rest);
  if (!warpgroup_expand_gradients(exec, s, dtype, in, to, arrays))
    dispatch_floating(
        dtype, [&](auto tag) { gradients_by_gemms<typename decltype(tag)::type>(exec, s, dtype, in, to, arrays); });
  expand_reduce(exec, s, dtype, in.product.x, in.dz, arrays.operands(), in.x, to, arrays.rest);
}

}  // namespace bantam::kernels::cuda
