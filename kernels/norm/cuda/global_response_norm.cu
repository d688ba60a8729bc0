// Global response normalisation on CUDA: sums over the positions of each sample, a kernel with a block a sample that
// relates its channels to one another, and a map over the rows of each sample; backward the same way.
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/elementwise/elementwise.h"
#include "bantam/kernels/norm/cuda/sample_rows.cuh"
#include "bantam/kernels/norm/global_response_norm.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kSampleThreads = 1024;  // of the block that relates a sample's channels

/// Terms of the forward sum: x².
template <class T>
struct SquareTerms {
  static constexpr int kSums = 1;
  const T* x;

  template <int N>
  __device__ Pack<T, N> load(std::int64_t at) const {
    return load_pack<N>(x + at);
  }
  template <int N>
  __device__ void add(const Pack<T, N>& loaded, float (&sum)[N]) const {
    float v[N];
    unpack<N>(loaded, v);
#pragma unroll
    for (int n = 0; n < N; ++n) sum[n] = fmaf(v[n], v[n], sum[n]);
  }
};

/// N elements of x and of dy.
template <class T, int N>
struct GradientPacks {
  Pack<T, N> x, dy;
};

/// Terms of the two sums of backward: dy, and dy·x.
template <class T>
struct GradientTerms {
  static constexpr int kSums = 2;
  const T *x, *dy;

  template <int N>
  __device__ GradientPacks<T, N> load(std::int64_t at) const {
    return {load_pack<N>(x + at), load_pack<N>(dy + at)};
  }
  template <int N>
  __device__ void add(const GradientPacks<T, N>& loaded, float (&sum)[2 * N]) const {
    float v[N], g[N];
    unpack<N>(loaded.x, v);
    unpack<N>(loaded.dy, g);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      sum[n] += g[n];
      sum[N + n] = fmaf(g[n], v[n], sum[N + n]);
    }
  }
};

/// Sums of the terms over the positions of each part, to partials (samples, parts, kSums, channels).
template <int N, class Terms>
__global__ void __launch_bounds__(kTileThreads, 2) response_sums_kernel(SampleRows rows, Terms terms, float* partials) {
  constexpr int kSums = Terms::kSums;
  const int width = static_cast<int>(blockDim.x) * N;
  const std::int64_t c0 = static_cast<std::int64_t>(blockIdx.x) * width, c = c0 + threadIdx.x * N;
  for (std::int64_t sample = blockIdx.z; sample < rows.samples; sample += gridDim.z) {
    float sum[kSums * N] = {};
    if (c < rows.channels) {
      const std::int64_t begin = rows.offset(sample) + c, step = blockDim.y * rows.channels;
      for_tiles<kSumRowsAtOnce>(
          rows.positions,
          [&](std::int64_t r) {
            const std::int64_t at = begin + r * rows.channels;
            decltype(terms.template load<N>(at)) loaded[kSumRowsAtOnce];
#pragma unroll
            for (int k = 0; k < kSumRowsAtOnce; ++k) loaded[k] = terms.template load<N>(at + k * step);
#pragma unroll
            for (int k = 0; k < kSumRowsAtOnce; ++k) terms.template add<N>(loaded[k], sum);
          },
          [&](std::int64_t r) { terms.template add<N>(terms.template load<N>(begin + r * rows.channels), sum); });
    }
    float* to = partials + (sample * rows.parts + blockIdx.y) * kSums * rows.channels;
    sum_over_block_rows(sum, [&](int i, int thread, float total) {
      const std::int64_t channel = c0 + thread * N + i % N;
      if (channel < rows.channels) to[i / N * rows.channels + channel] = total;
    });
    __syncthreads();  // the next sample's sums go to the same shared memory
  }
}

template <int N, class Terms>
void sum_positions(const Exec& exec, const SampleRows& rows, const Terms& terms, float* partials) {
  const auto [grid, block] = sample_grid<N>(rows);
  response_sums_kernel<N><<<grid, block, 0, stream_of(exec)>>>(rows, terms, partials);
  check_launch("response_sums_kernel");
}

/// The parts' sum number k of kSums of a channel, in part order.
template <int kSums>
__device__ inline double sum_of_parts(const SampleRows& rows, const float* partials, std::int64_t sample, int k,
                                      std::int64_t c) {
  const float* from = partials + (sample * rows.parts * kSums + k) * rows.channels + c;
  double sum = 0;
#pragma unroll 4
  for (unsigned part = 0; part < rows.parts; ++part) sum += from[std::int64_t{part} * kSums * rows.channels];
  return sum;
}

/// Adds up a value over a block of kSampleThreads, for all its threads, in a fixed order.
__device__ inline double sum_over_threads(double value) {
  constexpr int kSampleWarps = kSampleThreads / 32;
  __shared__ double warps[kSampleWarps];
  for (int apart = 16; apart > 0; apart /= 2) value += __shfl_xor_sync(0xffffffffu, value, apart);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  double total = 0;
  for (int warp = 0; warp < kSampleWarps; ++warp) total += warps[warp];
  return total;
}

/// The norms G of a sample's channels, and 1/(mean(G) + epsilon).
__global__ void __launch_bounds__(kSampleThreads)
    response_norms_kernel(SampleRows rows, const float* partials, ResponseStatistics to) {
  const std::int64_t sample = blockIdx.x;
  double total = 0;
  for (std::int64_t c = threadIdx.x; c < rows.channels; c += kSampleThreads) {
    const auto norm = static_cast<float>(sqrt(sum_of_parts<1>(rows, partials, sample, 0, c)));
    to.norm[sample * rows.channels + c] = norm;
    total += norm;
  }
  total = sum_over_threads(total);
  if (threadIdx.x == 0)
    to.inverse[sample] = static_cast<float>(1.0 / (total / static_cast<double>(rows.channels) + to.epsilon));
}

/// Of a sample: the factors of x in dx, dG/G, which are 0 where G is, to slopes (samples, channels); and its shares in
/// dshift and dscale, to shares (samples, 2, channels).
__global__ void __launch_bounds__(kSampleThreads)
    response_slopes_kernel(SampleRows rows, const float* partials, ResponseOperand operand, float* slopes,
                           float* shares) {
  const std::int64_t sample = blockIdx.x, channels = rows.channels;
  const float* norm = operand.norm + sample * channels;
  const float inverse = operand.inverse[sample];
  float *slope = slopes + sample * channels, *share = shares + sample * 2 * channels;
  double mean = 0;  // of dN·N
  for (std::int64_t c = threadIdx.x; c < channels; c += kSampleThreads) {
    const double products = sum_of_parts<2>(rows, partials, sample, 1, c);
    const float response = norm[c] * inverse, factor = operand.scale[c];
    share[c] = static_cast<float>(sum_of_parts<2>(rows, partials, sample, 0, c));
    share[channels + c] = static_cast<float>(products * response);
    slope[c] = static_cast<float>(products * factor);  // dN, which this thread reads again
    mean += products * factor * response;
  }
  mean = sum_over_threads(mean) / static_cast<double>(channels);
  for (std::int64_t c = threadIdx.x; c < channels; c += kSampleThreads)
    slope[c] = norm[c] > 0 ? static_cast<float>(inverse * (slope[c] - mean) / norm[c]) : 0.0f;
}

/// Loads the factors γ·N + 1 of N channels from c on of a sample.
template <int N>
__device__ inline void load_response_factors(const ResponseOperand& operand, const SampleRows& rows,
                                             std::int64_t sample, std::int64_t c, float (&factor)[N]) {
  float norm[N];
  load_floats(operand.scale, c, 1.0f, factor);
  load_floats(operand.norm + sample * rows.channels, c, 0.0f, norm);
  const float inverse = operand.inverse[sample];
#pragma unroll
  for (int n = 0; n < N; ++n) factor[n] = fmaf(factor[n], norm[n] * inverse, 1.0f);
}

/// Two values of each of N channels.
template <int N>
struct ChannelPairs {
  float first[N], second[N];
};

/// y = x·(γ·N + 1) + β.
template <class T>
struct ApplyResponse : OfSample {
  static constexpr std::int64_t kRounds = 2;  ///< tiles of a block, as of a group norm

  SampleRows rows;
  ResponseOperand operand;
  T* y;

  ApplyResponse(const SampleRows& of, const ResponseOperand& from, T* to) : rows(of), operand(from), y(to) {}
  template <int N>
  __device__ ChannelPairs<N> start(std::int64_t c, std::integral_constant<int, N>) const {
    ChannelPairs<N> kept;
    load_response_factors<N>(operand, rows, sample(), c, kept.first);
    load_floats(operand.shift, c, 0.0f, kept.second);
    return kept;
  }
  template <int N>
  __device__ Pack<T, N> load(std::int64_t at) const {
    return load_pack<N>(static_cast<const T*>(operand.x) + rows.offset(sample()) + at);
  }
  template <int N>
  __device__ void apply(const ChannelPairs<N>& kept, const Pack<T, N>& loaded, std::int64_t at) const {
    float v[N];
    unpack<N>(loaded, v);
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] = fmaf(v[n], kept.first[n], kept.second[n]);
    repack<N>(v, y + rows.offset(sample()) + at);
  }
};

/// dx = dy·(γ·N + 1) + x·slope.
template <class T>
struct ResponseInputGradient : OfSample {
  static constexpr std::int64_t kRounds = 2;

  SampleRows rows;
  ResponseOperand operand;
  GradientTerms<T> from;
  const float* slopes;  // (samples, channels)
  T* dx;

  ResponseInputGradient(const SampleRows& of, const ResponseOperand& response, const GradientTerms<T>& terms,
                        const float* slope, T* to)
      : rows(of), operand(response), from(terms), slopes(slope), dx(to) {}
  template <int N>
  __device__ ChannelPairs<N> start(std::int64_t c, std::integral_constant<int, N>) const {
    ChannelPairs<N> kept;
    load_response_factors<N>(operand, rows, sample(), c, kept.first);
    load_floats(slopes + sample() * rows.channels, c, 0.0f, kept.second);
    return kept;
  }
  template <int N>
  __device__ GradientPacks<T, N> load(std::int64_t at) const {
    return from.template load<N>(rows.offset(sample()) + at);
  }
  template <int N>
  __device__ void apply(const ChannelPairs<N>& kept, const GradientPacks<T, N>& loaded, std::int64_t at) const {
    float v[N], g[N];
    unpack<N>(loaded.x, v);
    unpack<N>(loaded.dy, g);
#pragma unroll
    for (int n = 0; n < N; ++n) g[n] = fmaf(g[n], kept.first[n], v[n] * kept.second[n]);
    repack<N>(g, dx + rows.offset(sample()) + at);
  }
};

/// Where the shares of all samples (2, channels) go: to dshift, then to dscale.
struct WriteWeightGradients {
  NormGradients to;
  std::int64_t channels;

  __device__ void operator()(std::int64_t i, float sum) const {
    float* vector = i < channels ? to.dshift : to.dscale;
    if (vector == nullptr) return;
    float& value = vector[i < channels ? i : i - channels];
    value = to.accumulate ? value + sum : sum;
  }
};

unsigned sample_blocks(const SampleRows& rows) { return static_cast<unsigned>(rows.samples); }

template <class T>
void apply_response(const Exec& exec, const SampleRows& rows, const ResponseOperand& operand, void* y) {
  const ApplyResponse<T> map(rows, operand, static_cast<T*>(y));
  with_pack<T>([&](auto n) { map_samples<decltype(n)::value>(exec, rows, map); }, rows.channels,
               static_cast<const T*>(operand.x), static_cast<const T*>(y));
}

}  // namespace

void global_response_forward(const Exec& exec, const GroupNormShape& shape, DType dtype, const ResponseOperand& operand,
                             const ResponseStatistics& to, void* y, Workspace workspace) {
  if (shape.elements() <= 0) return;
  require_workspace(workspace, global_response_workspace_bytes(shape, DeviceKind::cuda), "global_response_forward");
  const SampleRows rows(shape);
  float* partials = static_cast<float*>(workspace.data);  // (samples, parts, channels)
  ResponseOperand written = operand;
  written.norm = to.norm;
  written.inverse = to.inverse;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto* x = static_cast<const T*>(operand.x);
    with_pack<T>([&](auto n) { sum_positions<decltype(n)::value>(exec, rows, SquareTerms<T>{x}, partials); },
                 shape.channels, x);
    response_norms_kernel<<<sample_blocks(rows), kSampleThreads, 0, stream_of(exec)>>>(rows, partials, to);
    check_launch("response_norms_kernel");
    if (y != nullptr) apply_response<T>(exec, rows, written, y);
  });
}

void global_response_apply(const Exec& exec, const GroupNormShape& shape, DType dtype, const ResponseOperand& operand,
                           void* y) {
  if (shape.elements() <= 0) return;
  dispatch_floating(
      dtype, [&](auto tag) { apply_response<typename decltype(tag)::type>(exec, SampleRows(shape), operand, y); });
}

void global_response_backward(const Exec& exec, const GroupNormShape& shape, DType dtype,
                              const ResponseOperand& operand, const void* dy, const NormGradients& to,
                              Workspace workspace) {
  if (shape.elements() <= 0) {
    for (float* sum : {to.dscale, to.dshift})
      if (sum != nullptr && !to.accumulate) fill(exec, shape.channels, DType::float32, 0.0f, sum);
    return;
  }
  require_workspace(workspace, global_response_workspace_bytes(shape, DeviceKind::cuda), "global_response_backward");
  const SampleRows rows(shape);
  float* partials = static_cast<float*>(workspace.data);                     // (samples, parts, 2, channels)
  float* slopes = partials + rows.samples * rows.parts * 2 * rows.channels;  // (samples, channels)
  float* shares = slopes + rows.samples * rows.channels;                     // (samples, 2, channels)
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const GradientTerms<T> terms{static_cast<const T*>(operand.x), static_cast<const T*>(dy)};
    const auto with_packs = [&](auto&& run) { with_pack<T>(run, shape.channels, terms.x, terms.dy, to.dx); };
    with_packs([&](auto n) { sum_positions<decltype(n)::value>(exec, rows, terms, partials); });
    response_slopes_kernel<<<sample_blocks(rows), kSampleThreads, 0, stream_of(exec)>>>(rows, partials, operand, slopes,
                                                                                        shares);
    check_launch("response_slopes_kernel");
    if (to.dscale != nullptr || to.dshift != nullptr)
      add_parts(exec, shares, rows.samples, 2 * rows.channels, WriteWeightGradients{to, rows.channels});
    if (to.dx == nullptr) return;
    const ResponseInputGradient<T> map(rows, operand, terms, slopes, static_cast<T*>(to.dx));
    with_packs([&](auto n) { map_samples<decltype(n)::value>(exec, rows, map); });
  });
}

}  // namespace bantam::kernels::cuda
