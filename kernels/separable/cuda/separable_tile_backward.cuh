// Backward of a separable block of 8 and more input channels, one kernel: for each image of its run, a thread block
// holds a band of rows and a group of channels in shared memory, from dy to dx and both weight gradients.
#pragma once

#include "bantam/kernels/separable/cuda/separable_products.cuh"

namespace bantam::kernels::cuda {

/// The tile kernel's operands. `partials` (bands · image parts, gradients of separable_gradient_elements).
template <class T>
struct TilePointers {
  const T *x, *w_depthwise, *w_pointwise, *dy;
  const std::uint8_t* codes;
  T* dx;
  float* partials;
};

/// Two channels of a column of three rows.
struct Column {
  float2 row[3];
};

/// step(j, left, middle, right) for the columns j in [begin, end), given load(j + k) for the k-th column of the window.
template <class Load, class Step>
__device__ inline void walk_columns(int begin, int end, Load&& load, Step&& step) {
  if (begin >= end) return;
  Column a = load(begin), b = load(begin + 1);
  for (int j = begin; j < end; j += 3) {
    Column c = load(j + 2);
    step(j, a, b, c);
    if (j + 1 >= end) break;
    a = load(j + 3);
    step(j + 1, b, c, a);
    if (j + 2 >= end) break;
    b = load(j + 4);
    step(j + 2, c, a, b);
  }
}

__device__ inline void add_product(float2& sum, float2 a, float2 b) { sum.x += a.x * b.x, sum.y += a.y * b.y; }

/// The depthwise passes over a tile. A thread keeps two channels, and walks along rows or parts of rows.
template <class T, int kChannels>
struct DepthwiseWalk {
  static constexpr int kPairs = kChannels / 2, kWalkers = kSeparableThreads / kPairs;
  static constexpr int kStride = kMidStride<T, kChannels>, kGradientStride = kGradientMidStride<kChannels>;
  const TileGeometry& g;
  const TileBand& band;
  int channel = static_cast<int>(threadIdx.x) % kPairs * 2, walker = static_cast<int>(threadIdx.x) / kPairs;
  float2 weights[9];
  float2 gradient[9] = {};

  __device__ DepthwiseWalk(const TileGeometry& geometry, const TileBand& b, const T* w, int group)
      : g(geometry), band(b) {
#pragma unroll
    for (int tap = 0; tap < 9; ++tap) weights[tap] = load_two(w + tap * g.in_channels + group * kChannels + channel);
  }

  /// mid = depthwise(x) at the conv rows the band owns, from x (rows from x_begin on); positions up to the next
  /// multiple of 16 become 0. zeros: a row of zeros.
  __device__ void forward(const T* x, const T* zeros, T* mid) const {
    if (g.pad_left == 0 && g.conv_w + 2 == g.in_w) {
      forward_rows<false>(x, zeros, mid);
    } else {
      forward_rows<true>(x, zeros, mid);
    }
    const int positions = band.own_positions(g);
    for (int p = positions + walker; p < (positions + 15) / 16 * 16; p += kWalkers) {
      store_two(mid + p * kStride + channel, {0, 0});
    }
  }

  /// kPadded: columns may lie outside x.
  template <bool kPadded>
  __device__ void forward_rows(const T* x, const T* zeros, T* mid) const {
    const RowRuns cut = g.mid_runs;
    const int rows = band.own_end - band.own_begin, row_length = g.in_w * kChannels;
#pragma unroll 1
    for (int task = walker; task < rows * cut.runs; task += kWalkers) {
      const int row = task / cut.runs, begin = task % cut.runs * cut.length;
      const T* from[3];
#pragma unroll
      for (int ky = 0; ky < 3; ++ky) {
        const int x_row = band.own_begin + row - g.pad_top + ky;
        const bool inside = x_row >= 0 && x_row < g.in_h;
        from[ky] = (inside ? x + (x_row - band.x_begin) * row_length : zeros) + channel;
      }
      T* to = mid + row * g.conv_w * kStride + channel;
      walk_columns(
          begin, min(g.conv_w, begin + cut.length),
          [&](int j) {
            const int column = kPadded ? j - g.pad_left : j;
            Column c = {};
            if (!kPadded || static_cast<unsigned>(column) < static_cast<unsigned>(g.in_w)) {
#pragma unroll
              for (int ky = 0; ky < 3; ++ky) c.row[ky] = load_two(from[ky] + column * kChannels);
            }
            return c;
          },
          [&](int j, const Column& left, const Column& middle, const Column& right) {
            float2 sum = {0, 0};
#pragma unroll
            for (int ky = 0; ky < 3; ++ky) {
              add_product(sum, left.row[ky], weights[3 * ky]);
              add_product(sum, middle.row[ky], weights[3 * ky + 1]);
              add_product(sum, right.row[ky], weights[3 * ky + 2]);
            }
            store_two(to + j * kStride, sum);
          });
    }
  }

  /// dx (the band's rows, unless null) from d_mid with its border, and the sums x · d_mid of each tap.
  __device__ void backward(const T* x, const float* d_mid, T* dx) {
    const RowRuns cut = g.dx_runs;
    const int rows = band.in_end - band.in_begin, row_length = (g.in_w + 2) * kGradientStride;
#pragma unroll 1
    for (int task = walker; task < rows * cut.runs; task += kWalkers) {
      const int row = task / cut.runs, begin = task % cut.runs * cut.length;
      const float* from = d_mid + row * row_length + channel;
      const T* in = x + (band.in_begin + row - band.x_begin) * g.in_w * kChannels + channel;
      T* out = dx ? dx + static_cast<std::int64_t>(row) * g.in_w * g.in_channels + channel : nullptr;
      walk_columns(
          begin, min(g.in_w, begin + cut.length),
          [&](int j) {
            Column c;
#pragma unroll
            for (int r = 0; r < 3; ++r) c.row[r] = load_two(from + r * row_length + j * kGradientStride);
            return c;
          },
          [&](int j, const Column& left, const Column& middle, const Column& right) {
            const float2 value = load_two(in + j * kChannels);
            float2 sum = {0, 0};
#pragma unroll
            for (int ky = 0; ky < 3; ++ky) {  // tap (ky, kx) of conv position (i - ky, j - kx)
              const float2 d[3] = {right.row[2 - ky], middle.row[2 - ky], left.row[2 - ky]};
#pragma unroll
              for (int kx = 0; kx < 3; ++kx) {
                add_product(sum, d[kx], weights[3 * ky + kx]);
                add_product(gradient[3 * ky + kx], d[kx], value);
              }
            }
            if (out) store_two(out + j * g.in_channels, sum);
          });
    }
  }

  /// Sums of all walkers in their order, to (3, 3, in_channels). `scratch`: 18 floats a thread of shared memory.
  __device__ void write(float* d_depthwise, int group, float* scratch) const {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int tap = 0; tap < 9; ++tap) store_two(scratch + (walker * 9 + tap) * kChannels + channel, gradient[tap]);
    __syncthreads();
    for (int i = thread; i < 9 * kChannels; i += kSeparableThreads) {
      float sum = 0;
#pragma unroll 8
      for (int w = 0; w < kWalkers; ++w) sum += scratch[w * 9 * kChannels + i];
      d_depthwise[i / kChannels * g.in_channels + group * kChannels + i % kChannels] = sum;
    }
  }
};

__device__ inline void fill_zero(void* at, int bytes) {
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < bytes / 16; i += kSeparableThreads) {
    static_cast<uint4*>(at)[i] = {0, 0, 0, 0};
  }
}

/// Clears what no load writes (what matrix loads read past dz, a row of zeros, the border of d_mid) while the kernel
/// before ends, and starts the first image's loads.
template <class T, int kChannels>
__device__ void begin_tile(const TileGeometry& g, const TileBand& band, const TilePointers<T>& at,
                           const GradientLoader<T>& loader, const TileArrays<T>& arrays, unsigned char* shared,
                           int image, int group) {
  const int written = g.sparse_dz ? 0 : band.dz_positions(g) * g.dz_stride * static_cast<int>(sizeof(T));
  fill_zero(shared + written, (g.sparse_dz ? g.codes_at : g.weights_at) - written);
  fill_zero(shared + g.zeros_at, g.in_w * kChannels * static_cast<int>(sizeof(T)));
  fill_zero(arrays.d_mid, (g.band_rows + 2) * (g.in_w + 2) * kGradientMidStride<kChannels> * 4);
  wait_then_let_next_start();
  start_x<T, kChannels>(g, band, at.x, image, group, reinterpret_cast<T*>(shared + g.region_at));
  if (g.sparse_dz) __syncthreads();  // what is cleared lies where loads write
  loader.start(at.dy, at.codes, image);
  start_weights<T, kChannels>(g, at.w_pointwise, group, arrays.weights);
}

/// blockIdx.x: band · groups + group; blockIdx.y: part of the batch.
template <class T, int kChannels>
__global__ void __launch_bounds__(kSeparableThreads, 2)
    separable_tile_backward_kernel(const TileGeometry g, const TilePointers<T> at) {
  extern __shared__ __align__(128) unsigned char shared[];
  const int groups = g.in_channels / kChannels, group = static_cast<int>(blockIdx.x) % groups;
  const TileBand band(g, static_cast<int>(blockIdx.x) / groups);
  const int first_image = static_cast<int>(blockIdx.y) * g.images_each;
  const int end_image = min(g.batch, first_image + g.images_each);
  // x or mid; a pointer made here, so that the compiler knows it points to shared memory.
  const auto region = [&](int which) { return reinterpret_cast<T*>(shared + g.region_at + which * g.region_bytes); };
  const TileArrays<T> arrays{reinterpret_cast<T*>(shared), reinterpret_cast<T*>(shared + g.weights_at),
                             reinterpret_cast<float*>(shared + g.d_mid_at),
                             band.dz_begin - (band.in_begin + g.pad_top - 2), 2 - g.pad_left};
  const GradientLoader<T> loader{g, band, arrays.dz, shared + g.codes_at};
  begin_tile<T, kChannels>(g, band, at, loader, arrays, shared, first_image, group);
  TileProducts<T, kChannels> products;
  DepthwiseWalk<T, kChannels> walk(g, band, at.w_depthwise, group);
  for (int image = first_image; image < end_image; ++image) {
    const int turn = (image - first_image) % 2;  // x of the next image comes where mid of this one was
    T *x = region(turn), *mid = region(1 - turn);
    wait_for_copies();
    __syncthreads();
    loader.finish();
    __syncthreads();
    products.d_mid(g, arrays, band.dz_positions(g));
    walk.forward(x, reinterpret_cast<const T*>(shared + g.zeros_at), mid);
    __syncthreads();
    products.d_pointwise(g, arrays, mid, (band.own_begin - band.dz_begin) * g.conv_w, band.own_positions(g),
                         group == 0);
    __syncthreads();
    if (image + 1 < end_image) {
      loader.start(at.dy, at.codes, image + 1);
      start_x<T, kChannels>(g, band, at.x, image + 1, group, mid);
    }
    T* dx = at.dx ? at.dx + (static_cast<std::int64_t>(image) * g.in_h + band.in_begin) * g.in_w * g.in_channels +
                        group * kChannels
                  : nullptr;
    walk.backward(x, arrays.d_mid, dx);
  }
  const int in_out = g.out_channels * g.in_channels,
            part = static_cast<int>(blockIdx.y) * g.bands + static_cast<int>(blockIdx.x) / groups;
  float* to = at.partials + static_cast<std::int64_t>(part) * (in_out + 9 * g.in_channels + g.out_channels);
  __syncthreads();
  walk.write(to + in_out, group, reinterpret_cast<float*>(shared));
  __syncthreads();
  products.write(g, to, to + in_out + 9 * g.in_channels, group, reinterpret_cast<float*>(shared));
}

}  // namespace bantam::kernels::cuda
