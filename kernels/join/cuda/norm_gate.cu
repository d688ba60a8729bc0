// A batch norm before squeeze-and-excitation on CUDA: the norm is applied as each pass reads.
#include "bantam/kernels/elementwise/cuda/activation_math.cuh"
#include "bantam/kernels/join/cuda/position_passes.cuh"
#include "bantam/kernels/join/norm_gate.h"
#include "bantam/kernels/join/norm_gate_plan.h"
#include "bantam/kernels/norm/cuda/batch_norm_gradient.cuh"

namespace bantam::kernels::cuda {
namespace {

constexpr int kGateChannels = static_cast<int>(kNormGatePack);

/// x and its norm; values as if the norm had written them.
template <class T, class Function>
struct NormedInput {
  const T* x;
  AffineSource affine;
  Function f;

  /// v becomes a; with `slopes` also f'(z). One logistic function serves both.
  template <int N>
  __device__ void values(const Affine<N>& norm, float (&v)[N], float* slopes = nullptr) const {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float z = norm.z(n, v[n]);
      if (slopes != nullptr) slopes[n] = f.derivative(z);
      v[n] = to_float(from_float<T>(f(z)));
    }
  }
};

template <class T, class Function>
struct MeanTerms {
  NormedInput<T, Function> in;

  template <int N>
  __device__ Affine<N> start(std::int64_t, std::int64_t c) const {
    return in.affine.template load<N>(c);
  }
  template <int N>
  __device__ Pack<T, N> load(std::int64_t at) const {
    return load_pack<N>(in.x + at);
  }
  template <int N>
  __device__ void add(const Affine<N>& norm, const Pack<T, N>& loaded, std::int64_t, float (&sum)[N]) const {
    float v[N];
    unpack<N>(loaded, v);
    in.values(norm, v);
#pragma unroll
    for (int n = 0; n < N; ++n) sum[n] += v[n];
  }
};

/// y = a·factor.
template <class T, class Function>
struct Apply {
  NormedInput<T, Function> in;
  const float* factor;
  T* y;

  template <int N>
  struct Kept {
    Affine<N> norm;
    float factor[N];
  };
  template <int N>
  __device__ Kept<N> start(std::int64_t at, std::int64_t c) const {
    Kept<N> kept{in.affine.template load<N>(c), {}};
    load_floats<N>(factor, at, 0.0f, kept.factor);
    return kept;
  }
  template <int N>
  __device__ Pack<T, N> load(std::int64_t at) const {
    return load_pack<N>(in.x + at);
  }
  template <int N>
  __device__ void apply(const Kept<N>& kept, const Pack<T, N>& loaded, std::int64_t at) const {
    float v[N];
    unpack<N>(loaded, v);
    in.values(kept.norm, v);
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] *= kept.factor[n];
    repack<N>(v, y + at);
  }
};

/// The five sums.
template <class T, class Function>
struct GradientSumTerms {
  NormedInput<T, Function> in;
  const T* dy;

  template <int N>
  __device__ Affine<N> start(std::int64_t, std::int64_t c) const {
    return in.affine.template load<N>(c);
  }
  template <int N>
  __device__ TwoPacks<T, N> load(std::int64_t at) const {
    return {load_pack<N>(in.x + at), load_pack<N>(dy + at)};
  }
  template <int N>
  __device__ void add(const Affine<N>& norm, const TwoPacks<T, N>& loaded, std::int64_t,
                      float (&sum)[kNormGateSums * N]) const {
    float v[N], g[N], apart[N], slopes[N];
    unpack<N>(loaded.x, v);
    unpack<N>(loaded.dy, g);
#pragma unroll
    for (int n = 0; n < N; ++n) apart[n] = v[n] - norm.mean[n];
    in.values(norm, v, slopes);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      sum[n] = fmaf(g[n], v[n], sum[n]);
      const float dz = slopes[n] * g[n];
      sum[N + n] += dz;
      sum[2 * N + n] = fmaf(dz, apart[n], sum[2 * N + n]);
      sum[3 * N + n] += slopes[n];
      sum[4 * N + n] = fmaf(slopes[n], apart[n], sum[4 * N + n]);
    }
  }
};

/// The norm's totals from the samples' sums, in double and in a fixed order: 32 channels a block, whose rows of threads
/// share the samples.
constexpr int kTotalRows = 16;
__global__ void __launch_bounds__(32 * kTotalRows)
    gate_totals_kernel(const float* sums, const float* factor, const float* offset, std::int64_t samples,
                       std::int64_t channels, FinishGradientSums finish) {
  wait_then_let_next_start();
  __shared__ double shared[2][kTotalRows][32];
  const std::int64_t c = std::int64_t{blockIdx.x} * 32 + threadIdx.x, each = samples * channels;
  double total[2] = {};
  if (c < channels) {
#pragma unroll 4
    for (std::int64_t n = threadIdx.y; n < samples; n += kTotalRows) {
      const std::int64_t at = n * channels + c;
      const double by = factor[at], plus = offset[at];
#pragma unroll
      for (int k = 0; k < 2; ++k) total[k] += by * sums[(1 + k) * each + at] + plus * sums[(3 + k) * each + at];
    }
  }
#pragma unroll
  for (int k = 0; k < 2; ++k) shared[k][threadIdx.y][threadIdx.x] = total[k];
  __syncthreads();
  if (threadIdx.y != 0 || c >= channels) return;
#pragma unroll
  for (int k = 0; k < 2; ++k)
    for (int row = 1; row < kTotalRows; ++row) total[k] += shared[k][row][threadIdx.x];
  finish(c, finish.begin(c), total);
}

/// dx = scale·inv_std·(dz - Σdz/rows - x̂·Σ(dz·x̂)/rows), dz = f'(z)·(dy·factor + offset).
template <class T, class Function>
struct GateGradient {
  NormedInput<T, Function> in;
  const T* dy;
  const float *factor, *offset, *totals;
  std::int64_t channels;
  float per_row;
  T* dx;

  template <int N>
  struct Kept {
    InputGradientKept<N> norm;
    float factor[N], offset[N];
  };
  template <int N>
  __device__ Kept<N> start(std::int64_t at, std::int64_t c) const {
    const InputGradient<T, Function> gradient{nullptr, nullptr, in.affine, in.f, totals, channels, per_row, nullptr};
    Kept<N> kept{gradient.start(c, std::integral_constant<int, N>{}), {}, {}};
    load_floats<N>(factor, at, 0.0f, kept.factor);
    load_floats<N>(offset, at, 0.0f, kept.offset);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      kept.factor[n] *= kept.norm.affine.factor[n];
      kept.offset[n] *= kept.norm.affine.factor[n];
    }
    return kept;
  }
  template <int N>
  __device__ TwoPacks<T, N> load(std::int64_t at) const {
    return {load_pack<N>(in.x + at), load_pack<N>(dy + at)};
  }
  template <int N>
  __device__ void apply(const Kept<N>& kept, const TwoPacks<T, N>& loaded, std::int64_t at) const {
    const Affine<N>& norm = kept.norm.affine;
    float v[N], g[N];
    unpack<N>(loaded.x, v);
    unpack<N>(loaded.dy, g);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float apart = v[n] - norm.mean[n], slope = in.f.derivative(norm.z(n, v[n]));
      g[n] = fmaf(slope, fmaf(g[n], kept.factor[n], kept.offset[n]),
                  fmaf(kept.norm.slope[n], apart, kept.norm.constant[n]));
    }
    repack<N>(g, dx + at);
  }
};

/// Calls call(NormedInput) for x, and checks that the kernels support it.
template <class Call>
void with_normed(const ChannelScaleShape& s, const NormOperand& x, Call&& call) {
  const ActivationFunction f = x.affine.activation;
  if (!norm_gate_supports(s.channels, f)) throw ShapeError("norm_gate: channels or an activation without a kernel");
  dispatch_floating(s.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto with = [&](auto function) {
      const AffineSource affine{x.affine.scale, x.affine.shift, x.mean, x.inv_std};
      call(NormedInput<T, decltype(function)>{static_cast<const T*>(x.x), affine, function});
    };
    if (is_piecewise(f.kind)) return with(PiecewiseLinear::of(f));
    if (f.kind == Activation::hard_swish) return with(Hard{true});
    with(Silu{});
  });
}

}  // namespace

void norm_gate_mean(const Exec& exec, const ChannelScaleShape& s, const NormOperand& x, float* mean,
                    Workspace workspace) {
  if (s.factors() <= 0) return;
  const NormGateScratch scratch(s, DeviceKind::cuda, workspace, "norm_gate_mean");
  const float share = 1.0f / static_cast<float>(std::max<std::int64_t>(s.positions, 1));
  with_normed(s, x, [&]<class T, class F>(const NormedInput<T, F>& in) {
    sum_positions<kGateChannels>(exec, s, norm_gate_parts(s, DeviceKind::cuda), MeanTerms<T, F>{in},
                                 PositionSums<float>{mean, scratch.partials, share});
  });
}

void norm_gate_apply(const Exec& exec, const ChannelScaleShape& s, const NormOperand& x, const float* factor, void* y,
                     Workspace) {
  if (s.elements() <= 0) return;
  with_normed(s, x, [&]<class T, class F>(const NormedInput<T, F>& in) {
    map_positions<kGateChannels>(exec, s, Apply<T, F>{in, factor, static_cast<T*>(y)});
  });
}

void norm_gate_grad_sums(const Exec& exec, const ChannelScaleShape& s, const NormOperand& x, const void* dy,
                         float* sums, Workspace workspace) {
  if (s.factors() <= 0) return;
  const NormGateScratch scratch(s, DeviceKind::cuda, workspace, "norm_gate_grad_sums");
  with_normed(s, x, [&]<class T, class F>(const NormedInput<T, F>& in) {
    sum_positions<kGateChannels, kNormGateSums>(exec, s, norm_gate_parts(s, DeviceKind::cuda),
                                                GradientSumTerms<T, F>{in, static_cast<const T*>(dy)},
                                                PositionSums<float>{sums, scratch.partials, 1.0f});
  });
}

void norm_gate_grad(const Exec& exec, const ChannelScaleShape& s, const NormGateInputs& in, const NormGradients& to,
                    Workspace workspace) {
  if (s.elements() <= 0) return;
  const NormGateScratch scratch(s, DeviceKind::cuda, workspace, "norm_gate_grad");
  const FinishGradientSums finish{in.x.inv_std, scratch.totals, to.dscale, to.dshift, s.channels, to.accumulate};
  launch_early(exec, gate_totals_kernel, dim3(blocks_for(s.channels, 32)), dim3(32, kTotalRows), in.sums, in.factor,
               in.offset, s.samples, s.channels, finish);
  if (to.dx == nullptr) return;
  const float per_row = 1.0f / static_cast<float>(s.samples * s.positions);
  with_normed(s, in.x, [&]<class T, class F>(const NormedInput<T, F>& x) {
    map_positions<kGateChannels, true>(exec, s,
                                       GateGradient<T, F>{x, static_cast<const T*>(in.dy), in.factor, in.offset,
                                                          scratch.totals, s.channels, per_row, static_cast<T*>(to.dx)});
  });
}

}  // namespace bantam::kernels::cuda
