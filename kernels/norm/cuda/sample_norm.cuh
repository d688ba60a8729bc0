// Group norms of several positions run on CUDA like this: each sample is an array of rows whose channels' statistics
// differ from group to group. Blocks read whole rows, of many groups where those are narrow.
#pragma once

#include "bantam/kernels/common/cuda/reduce/moments.cuh"
#include "bantam/kernels/norm/cuda/batch_norm_gradient.cuh"
#include "bantam/kernels/norm/cuda/sample_rows.cuh"

namespace bantam::kernels::cuda {

/// The values that z of a sample's channels is computed with.
struct SampleAffine {
  SampleRows rows;
  const float *scale, *shift;
  const float *mean, *inv_std;  // (samples, groups)

  template <int N>
  __device__ Affine<N> load(std::int64_t sample, std::int64_t c) const {
    Affine<N> kept;
    load_floats(scale, c, 1.0f, kept.factor);
    load_floats(shift, c, 0.0f, kept.shift);
    rows.for_groups_of<N>(sample, c, [&](int n, std::int64_t group) {
      kept.mean[n] = mean[group];
      kept.factor[n] *= inv_std[group];
    });
    return kept;
  }
};

/// Moments of each channel of each part, relative to the sample's first row, to partials (samples, parts, 2, channels).
template <class T, int N>
__global__ void __launch_bounds__(kTileThreads, 2) sample_moments_kernel(const T* x, SampleRows rows, float* partials) {
  const std::int64_t c = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  for (std::int64_t sample = blockIdx.z; sample < rows.samples; sample += gridDim.z) {
    const T* from = x + rows.offset(sample) + c;
    Moments<float, N> moments;
    if (c < rows.channels) {
      float origin[N];
      unpack<N>(from, origin);
      add_part<N>(from, rows.positions, rows.channels, origin, moments);
    }
    merge_over_block_rows(moments);
    if (c < rows.channels && threadIdx.y == 0) {
      float* to = partials + rows.partials(sample, blockIdx.y) + c;
#pragma unroll
      for (int n = 0; n < N; ++n) {
        to[n] = moments.mean[n];
        to[rows.channels + n] = moments.m2[n];
      }
    }
  }
}

/// Adds up a value over `lanes` neighbouring lanes of a warp.
__device__ inline double sum_over_few(double value, int lanes) {
  for (int apart = lanes / 2; apart > 0; apart /= 2) value += __shfl_xor_sync(0xffffffffu, value, apart);
  return value;
}

/// `lanes` neighbouring threads for each of (samples, groups).
struct GroupThreads {
  int lanes;

  explicit GroupThreads(const SampleRows& rows) : lanes(1) {
    while (lanes < 32 && static_cast<unsigned>(lanes) < rows.width) lanes *= 2;
  }
  __device__ std::int64_t group() const { return grid_thread() / lanes; }
  __device__ unsigned lane() const { return threadIdx.x % static_cast<unsigned>(lanes); }
  unsigned blocks(const SampleRows& rows) const { return blocks_for(rows.samples * rows.groups * lanes, kMapThreads); }
};

/// Statistics of each group from its channels' moments, in double: relative to the sample's first value of the group.
template <class T>
__global__ void __launch_bounds__(kMapThreads)
    group_statistics_kernel(const T* x, SampleRows rows, DealtRows dealt, const float* partials, GroupThreads threads,
                            GroupNormOutput to) {
  const std::int64_t all = rows.samples * rows.groups, group = min(threads.group(), all - 1);
  const std::int64_t sample = group / rows.groups, c0 = group % rows.groups * rows.width;
  const T* first = x + rows.offset(sample) + c0;
  const double origin = to_float(first[0]);
  double sum = 0, squares = 0;
  for (unsigned part = 0; part < rows.parts; ++part) {
    const float* moments = partials + rows.partials(sample, part) + c0;
    const auto count = static_cast<double>(dealt.of(part));
    for (unsigned c = threads.lane(); c < rows.width; c += static_cast<unsigned>(threads.lanes)) {
      const double mean = to_float(first[c]) - origin + moments[c];
      sum += count * mean;
      squares += moments[rows.channels + c] + count * mean * mean;
    }
  }
  sum = sum_over_few(sum, threads.lanes);
  squares = sum_over_few(squares, threads.lanes);
  if (threads.group() >= all || threads.lane() != 0) return;
  const double count = static_cast<double>(rows.positions) * rows.width, mean = sum / count;
  const double variance = max(squares / count - mean * mean, 0.0);
  to.mean[group] = static_cast<float>(origin + mean);
  to.inv_std[group] = static_cast<float>(rsqrt(variance + to.epsilon));
}

/// y = f(z).
template <class T, class Function>
struct NormaliseSamples : OfSample {
  static constexpr std::int64_t kRounds = 2;  ///< tiles of a block: its preparation costs as much as a tile

  const T* x;
  SampleAffine affine;
  Function f;
  T* y;

  NormaliseSamples(const T* from, const SampleAffine& source, Function function, T* to)
      : x(from), affine(source), f(function), y(to) {}
  template <int N>
  __device__ Affine<N> start(std::int64_t c, std::integral_constant<int, N>) const {
    return affine.load<N>(sample(), c);
  }
  template <int N>
  __device__ Pack<T, N> load(std::int64_t at) const {
    return load_pack<N>(x + affine.rows.offset(sample()) + at);
  }
  template <int N>
  __device__ void apply(const Affine<N>& kept, const Pack<T, N>& loaded, std::int64_t at) const {
    float v[N];
    unpack<N>(loaded, v);
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] = kept.z(n, v[n]);
    apply_values(f, v);
    repack<N>(v, y + affine.rows.offset(sample()) + at);
  }
};

/// Σ dz and Σ dz·x̂ of each channel of each part, to partials (samples, parts, 2, channels).
template <class T, int N, class Function>
__global__ void __launch_bounds__(kTileThreads, 2)
    sample_sums_kernel(const T* x, const T* dy, SampleAffine affine, Function f, float* partials) {
  const SampleRows& rows = affine.rows;
  const int width = static_cast<int>(blockDim.x) * N;
  const std::int64_t c0 = static_cast<std::int64_t>(blockIdx.x) * width, c = c0 + threadIdx.x * N;
  for (std::int64_t sample = blockIdx.z; sample < rows.samples; sample += gridDim.z) {
    float sum[2 * N] = {};
    if (c < rows.channels) {
      const Affine<N> kept = affine.load<N>(sample, c);
      const std::int64_t begin = rows.offset(sample) + c, step = blockDim.y * rows.channels;
      const auto add = [&](const TwoPacks<T, N>& loaded) {
        float v[N], g[N], slopes[N];
        unpack<N>(loaded.x, v);
        unpack<N>(loaded.dy, g);
#pragma unroll
        for (int n = 0; n < N; ++n) slopes[n] = kept.z(n, v[n]);
        apply_slopes(f, slopes);
#pragma unroll
        for (int n = 0; n < N; ++n) add_gradient_terms(g[n] * slopes[n], v[n] - kept.mean[n], sum[n], sum[N + n]);
      };
      for_tiles<kSumRowsAtOnce>(
          rows.positions,
          [&](std::int64_t r) {
            const std::int64_t at = begin + r * rows.channels;
            TwoPacks<T, N> loaded[kSumRowsAtOnce];
#pragma unroll
            for (int k = 0; k < kSumRowsAtOnce; ++k)
              loaded[k] = {load_pack<N>(x + at + k * step), load_pack<N>(dy + at + k * step)};
#pragma unroll
            for (int k = 0; k < kSumRowsAtOnce; ++k) add(loaded[k]);
          },
          [&](std::int64_t r) {
            const std::int64_t at = begin + r * rows.channels;
            add({load_pack<N>(x + at), load_pack<N>(dy + at)});
          });
    }
    float* to = partials + rows.partials(sample, blockIdx.y);
    sum_over_block_rows(sum, [&](int i, int thread, float total) {
      const std::int64_t channel = c0 + thread * N + i % N;
      if (channel >= rows.channels) return;
      to[i / N * rows.channels + channel] = i < N ? total : total * affine.inv_std[rows.group(sample, channel)];
    });
    __syncthreads();  // the next sample's sums go to the same shared memory
  }
}

/// Computes what dx of a group needs: the means of w = scale·dz and of w·x̂ over it, to means (samples, groups, 2).
__global__ void __launch_bounds__(kMapThreads)
    group_means_kernel(SampleRows rows, const float* scale, const float* partials, GroupThreads threads, float* means) {
  const std::int64_t all = rows.samples * rows.groups, group = min(threads.group(), all - 1);
  const std::int64_t sample = group / rows.groups, c0 = group % rows.groups * rows.width;
  double sum = 0, products = 0;
  for (unsigned part = 0; part < rows.parts; ++part) {
    const float* sums = partials + rows.partials(sample, part) + c0;
    for (unsigned c = threads.lane(); c < rows.width; c += static_cast<unsigned>(threads.lanes)) {
      const double factor = scale != nullptr ? scale[c0 + c] : 1.0f;
      sum += factor * sums[c];
      products += factor * sums[rows.channels + c];
    }
  }
  sum = sum_over_few(sum, threads.lanes);
  products = sum_over_few(products, threads.lanes);
  if (threads.group() >= all || threads.lane() != 0) return;
  const double count = static_cast<double>(rows.positions) * rows.width;
  means[2 * group] = static_cast<float>(sum / count);
  means[2 * group + 1] = static_cast<float>(products / count);
}

/// dx = inv_std·(w - mean(w) - x̂·mean(w·x̂)) + addend = factor·dz + slope·(x - mean) + constant + addend.
template <class T, class Function>
struct SampleInputGradient : OfSample {
  static constexpr std::int64_t kRounds = 2;

  const T *x, *dy;
  SampleAffine affine;
  Function f;
  const float* means;  // (samples, groups, 2)
  const T* addend;     // or null
  T* dx;

  SampleInputGradient(const T* from, const T* gradient, const SampleAffine& source, Function function,
                      const float* group_means, const T* more, T* to)
      : x(from), dy(gradient), affine(source), f(function), means(group_means), addend(more), dx(to) {}
  template <int N>
  __device__ InputGradientKept<N> start(std::int64_t c, std::integral_constant<int, N>) const {
    InputGradientKept<N> kept{affine.load<N>(sample(), c), {}, {}};
    affine.rows.for_groups_of<N>(sample(), c, [&](int n, std::int64_t group) {
      const float inv_std = affine.inv_std[group];
      kept.constant[n] = -inv_std * means[2 * group];
      kept.slope[n] = -inv_std * inv_std * means[2 * group + 1];
    });
    return kept;
  }
  template <int N>
  __device__ TwoPacks<T, N> load(std::int64_t at) const {
    const std::int64_t offset = affine.rows.offset(sample()) + at;
    return {load_pack<N>(x + offset), load_pack<N>(dy + offset)};
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
    const std::int64_t offset = affine.rows.offset(sample()) + at;
    if (addend != nullptr) {
      float more[N];
      unpack<N>(addend + offset, more);
#pragma unroll
      for (int n = 0; n < N; ++n) g[n] += more[n];
    }
    repack<N>(g, dx + offset);
  }
};

/// Where the sums of all samples (2, channels) go: dshift, then dscale.
struct WriteVectors {
  float *dscale, *dshift;
  std::int64_t channels;
  bool accumulate;

  __device__ void operator()(std::int64_t i, float sum) const {
    float* to = i < channels ? dshift : dscale;
    if (to == nullptr) return;
    const std::int64_t c = i < channels ? i : i - channels;
    to[c] = accumulate ? to[c] + sum : sum;
  }
};

}  // namespace bantam::kernels::cuda
