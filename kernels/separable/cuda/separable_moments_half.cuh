// The moment matrix of half types, on tensor cores: rows are taps and channels of a patch, and the sum runs over
// positions, four pixels of a 2x2 window a lane.
#pragma once

#include "bantam/kernels/separable/cuda/separable_moments.cuh"

namespace bantam::kernels::cuda {

/// A step of the tensor-core kernel as loaded: 4 windows, one a lane % 4, times 32 channels, four a lane / 4 (channel
/// 4·(lane / 4) + j is column lane / 4 of tile j, so that a lane's loads are neighbours).
template <int kPool>
struct StepLoad {
  static constexpr int kPixels = kPool == 2 ? 1 : 4;
  uint2 dy[kPixels];
  std::uint32_t codes;  ///< 4 nibbles (pool 2: window pixels; pool 1: a nibble a pixel, a bit a channel)
};

/// dy and codes of a band of an image, from the lane's channel on (pool 1: of the image; codes from its byte on).
template <class T>
struct BandGradient {
  const T* dy;
  const std::uint8_t* codes;
  template <int kPool>
  __device__ static BandGradient of(const MomentGeometry& g, const MomentPointers<T>& at, const MomentBand& band,
                                    int image, int channel) {
    const std::int64_t row = static_cast<std::int64_t>(image) * g.out_h + (kPool == 2 ? band.window_begin : 0);
    const std::int64_t first = row * g.out_w * g.out_channels + channel;
    return {at.dy + first, at.codes + first / (kPool == 2 ? 2 : 8)};
  }
};

/// Loads a window of the band, four channels; zeros where it does not exist.
template <int kPool, class T>
__device__ inline StepLoad<kPool> load_step(const MomentGeometry& g, const MomentBand& band,
                                            const BandGradient<T>& from, int window, int channel) {
  StepLoad<kPool> load = {};
  if (window >= band.windows || channel >= g.out_channels) return load;
  if constexpr (kPool == 2) {  // the band's windows are neighbours in memory
    const auto element = static_cast<unsigned>(window * g.out_channels);
    load.dy[0] = *reinterpret_cast<const uint2*>(from.dy + element);
    load.codes = *reinterpret_cast<const std::uint16_t*>(from.codes + element / 2);
  } else {
    const Divided place = g.by_window_columns.divide(static_cast<std::uint32_t>(window));
    const int row = band.window_begin + static_cast<int>(place.quotient), column = static_cast<int>(place.remainder);
#pragma unroll
    for (int pixel = 0; pixel < 4; ++pixel) {
      const int h = 2 * row + pixel / 2, w = 2 * column + pixel % 2;
      if (h >= g.out_h || w >= g.out_w) continue;
      const auto element = static_cast<unsigned>((h * g.out_w + w) * g.out_channels);
      load.dy[pixel] = *reinterpret_cast<const uint2*>(from.dy + element);
      const std::uint32_t open = g.masked ? from.codes[element / 8] >> (channel % 8) & 0xfu : 0xfu;
      load.codes |= open << (4 * pixel);
    }
  }
  return load;
}

/// dz as the right operand of tile j: k = 2t, 2t + 1 (b[0]) and 2t + 8, 2t + 9 (b[1]) are the four pixels of the lane's
/// window.
template <int kPool>
__device__ inline void right_operand(const StepLoad<kPool>& load, int j, std::uint32_t (&b)[2]) {
  if constexpr (kPool == 2) {
    const std::uint32_t pair = j < 2 ? load.dy[0].x : load.dy[0].y, value = j % 2 ? pair >> 16 : pair & 0xffffu;
    // The product with 1, 2^16 or 0 puts a 16-bit value into the low half, the high half or nowhere.
    const std::uint32_t spread = load.codes | load.codes << 15;
    b[0] = value * (spread >> (4 * j) & 0x10001u);
    b[1] = value * (spread >> (4 * j + 2) & 0x10001u);
  } else {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const uint2 left = load.dy[2 * row], right = load.dy[2 * row + 1];
      const std::uint32_t both =
          __byte_perm(j < 2 ? left.x : left.y, j < 2 ? right.x : right.y, j % 2 ? 0x7632 : 0x5410);
      const std::uint32_t open = load.codes >> (8 * row + j);  // bit 0: left pixel, bit 4: right pixel
      b[row] = both & (((open & 1u) | (open << 12 & 0x10000u)) * 0xffffu);
    }
  }
}

/// Pairs (element i, element i + kIn) of the band's rows: a pixel and its right neighbour, with padding.
template <int kIn>
__device__ inline void make_pairs(const MomentGeometry& g, const MomentBand& band, const std::uint16_t* raw,
                                  std::uint32_t* pairs) {
  const int count = band.x_rows * g.columns * kIn;
  if (g.columns == g.in_w && band.read_end - band.read_begin == band.x_rows) {
#pragma unroll 2
    for (int i = static_cast<int>(threadIdx.x) * 4; i < count; i += kSeparableThreads * 4) {
      const uint2 own = *reinterpret_cast<const uint2*>(raw + i), next = *reinterpret_cast<const uint2*>(raw + i + 4);
      const std::uint32_t v[4] = {own.x, own.y, next.x, next.y};
      std::uint32_t pair[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        constexpr std::uint32_t kTake[4] = {0x5410, 0x7610, 0x5432, 0x7632};  // halves (low of a, low of b) …
        const int right = e + kIn;
        pair[e] = __byte_perm(v[e / 2], v[right / 2], kTake[e % 2 * 2 + right % 2]);
      }
      *reinterpret_cast<uint4*>(pairs + i) = {pair[0], pair[1], pair[2], pair[3]};
    }
    return;
  }
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kSeparableThreads) {
    const Divided at = g.by_row.divide(static_cast<std::uint32_t>(i));
    const int row = band.x_begin + static_cast<int>(at.quotient);
    const int column = static_cast<int>(at.remainder) / kIn - g.pad_left, c = static_cast<int>(at.remainder) % kIn;
    std::uint32_t pair = 0;
    if (row >= band.read_begin && row < band.read_end) {
      const std::uint16_t* from = raw + ((row - band.read_begin) * g.in_w + column) * kIn + c;
      if (column >= 0 && column < g.in_w) pair = from[0];
      if (column + 1 >= 0 && column + 1 < g.in_w) pair |= static_cast<std::uint32_t>(from[kIn]) << 16;
    }
    pairs[i] = pair;
  }
}

/// Starts the load of the band's rows of x, as they lie in memory.
template <int kIn>
__device__ inline void start_rows(const MomentGeometry& g, const MomentBand& band, const void* x, int image,
                                  std::uint16_t* raw) {
  const int count = (band.read_end - band.read_begin) * g.in_w * kIn;
  const std::uint16_t* from = static_cast<const std::uint16_t*>(x) +
                              (static_cast<std::int64_t>(image) * g.in_h + band.read_begin) * g.in_w * kIn;
  const int whole = reinterpret_cast<std::uintptr_t>(from) % 16 == 0 ? count / 8 : 0;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < whole; i += kSeparableThreads) {
    copy_async<16>(raw + i * 8, from + i * 8);
  }
#pragma unroll 1
  for (int i = whole * 8 + static_cast<int>(threadIdx.x); i < count; i += kSeparableThreads) raw[i] = from[i];
}

/// The sums of a warp: rows are taps times channels of a patch, and the ones, in tiles of 16; columns 32 output
/// channels.
template <class T, int kIn>
struct MomentSums {
  static constexpr int kTaps = 9 * kIn, kTiles = (kTaps + 16) / 16, kRows = kTiles * 16 + 1;
  int lane = static_cast<int>(threadIdx.x % 32), row_bytes;
  int tap_at[2 * kTiles];  ///< for row 8·i + lane / 4: bytes from a window's first pair to its own
  float sums[kTiles][4][4] = {};

  __device__ explicit MomentSums(const MomentGeometry& g) : row_bytes(g.columns * kIn * 4) {
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      const int row = min(8 * i + lane / 4, kTaps - 1), tap = row / kIn;
      tap_at[i] = ((tap / 3 * g.columns + tap % 3) * kIn + row % kIn) * 4;
    }
  }

  /// Adds four windows; `window`: where the pairs of the lane's begin.
  template <int kPool>
  __device__ void add(const StepLoad<kPool>& load, const unsigned char* window) {
    std::uint32_t right[4][2];
#pragma unroll
    for (int j = 0; j < 4; ++j) right_operand<kPool>(load, j, right[j]);
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      std::uint32_t left[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // rows lane / 4 and that + 8, of the window's upper and lower pixels
        const int part = 2 * m + i % 2, row = 8 * part + lane / 4;
        left[i] = *reinterpret_cast<const std::uint32_t*>(window + tap_at[part] + i / 2 * row_bytes);
        if (8 * part + 8 > kTaps && row >= kTaps) left[i] = row == kTaps ? WarpMma<T>::kOnes : 0u;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) WarpMma<T>::multiply_add(sums[m][j], left, right[j]);
    }
  }

  /// To (32 channels, kRows).
  __device__ void store(float* to) const {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int o = 4 * (lane % 4 * 2 + i % 2) + j, row = 16 * m + lane / 4 + i / 2 * 8;
          to[o * kRows + row] = sums[m][j][i];
        }
      }
    }
  }
};

/// The windows of an image's band, four a step and lane, distributed over the warps of a slice. Loads run kAhead steps
/// before the sums, across images.
template <class T, int kPool>
struct StepQueue {
  static constexpr int kAhead = kPool == 2 ? 4 : 1;
  const MomentGeometry& g;
  const MomentBand& band;
  const MomentPointers<T>& at;
  int channel, part, parts, steps, rounds;  ///< rounds: a multiple of kAhead
  BandGradient<T> gradient;
  StepLoad<kPool> loads[kAhead];

  __device__ StepQueue(const MomentGeometry& geometry, const MomentBand& b, const MomentPointers<T>& pointers,
                       const MomentShare& share, int image)
      : g(geometry),
        band(b),
        at(pointers),
        channel(share.slice * 32 + static_cast<int>(threadIdx.x % 32) / 4 * 4),
        part(share.part),
        parts(share.parts),
        steps((b.windows + 3) / 4) {
    rounds = part < parts ? ((steps + parts - 1) / parts + kAhead - 1) / kAhead * kAhead : 0;
    open(image);
#pragma unroll
    for (int u = 0; u < kAhead; ++u) loads[u] = load(u);
  }
  __device__ void open(int image) { gradient = BandGradient<T>::template of<kPool>(g, at, band, image, channel); }
  __device__ int window(int round) const { return (round * parts + part) * 4 + static_cast<int>(threadIdx.x % 4); }
  __device__ StepLoad<kPool> load(int round) const {
    return load_step<kPool>(g, band, gradient, window(round), channel);
  }

  /// add(load, window) for all steps of an image; then loads are those of `next_image`, where it exists.
  template <class Add>
  __device__ void run(int next_image, bool next_exists, Add&& add) {
    for (int round = 0; round < rounds; round += kAhead) {
      const bool wraps = round + kAhead >= rounds;
      if (wraps) open(next_image);
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const StepLoad<kPool> loaded = loads[u];
        if (!wraps || next_exists) loads[u] = load(wraps ? u : round + kAhead + u);
        if ((round + u) * parts + part < steps) add(loaded, min(window(round + u), band.windows - 1));
      }
    }
  }
};

/// Half types, on tensor cores. blockIdx.x: band; blockIdx.y: part of the batch.
template <class T, int kIn, int kPool>
__global__ void __launch_bounds__(kSeparableThreads, 2)
    separable_moments_kernel(const MomentGeometry g, const MomentPointers<T> at) {
  extern __shared__ __align__(128) unsigned char shared[];
  std::uint16_t* raw = reinterpret_cast<std::uint16_t*>(shared);
  const MomentBand band(g, static_cast<int>(blockIdx.x));
  const MomentShare share(g.out_channels);
  const int first_image = static_cast<int>(blockIdx.y) * g.images_each;
  const int end_image = min(g.batch, first_image + g.images_each);
  if (threadIdx.x < 16) raw[(band.read_end - band.read_begin) * g.in_w * kIn + threadIdx.x] = 0;  // read with the last
  int* places = reinterpret_cast<int*>(shared + g.places_at);  // where windows lie: bytes from the first pair
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < band.windows; i += kSeparableThreads) {
    const Divided place = g.by_window_columns.divide(static_cast<std::uint32_t>(i));
    places[i] = static_cast<int>(place.quotient * 2 * g.columns + place.remainder * 2) * kIn * 4;
  }
  wait_then_let_next_start();
  start_rows<kIn>(g, band, at.x, first_image, raw);
  StepQueue<T, kPool> queue(g, band, at, share, first_image);
  MomentSums<T, kIn> moments(g);
  float* weights = reinterpret_cast<float*>(shared + g.weights_at);
  load_moment_weights<kIn>(g, at, weights);
  for (int image = first_image; image < end_image; ++image) {
    wait_for_copies();
    __syncthreads();
    make_pairs<kIn>(g, band, raw, reinterpret_cast<std::uint32_t*>(shared + g.pairs_at));
    __syncthreads();
    if (image + 1 < end_image) start_rows<kIn>(g, band, at.x, image + 1, raw);
    queue.run(image + 1, image + 1 < end_image, [&](const StepLoad<kPool>& load, int window) {
      moments.template add<kPool>(load, shared + g.pairs_at + places[window]);
    });
  }
  __syncthreads();
  float* sums = reinterpret_cast<float*>(shared);
  constexpr int kRows = MomentSums<T, kIn>::kRows;
  if (share.part < share.parts) moments.store(sums + (share.part * share.slices + share.slice) * 32 * kRows);
  write_moment_gradients<kIn, kRows>(g, at, sums, weights, static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x));
}

}  // namespace bantam::kernels::cuda
