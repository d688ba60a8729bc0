// 3x3 convolution of 8 to 32 input channels: each warp multiplies the patches of 64 pixels, read from a tile of the
// image in shared memory, with all weights, whose fragments lie ready beside it, while the next tile is on its way.
// With pooling, the 2x2 maxima of its pixels are stored in their place.
#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/common/cuda/mma/half_pair.cuh"
#include "bantam/kernels/common/cuda/shared_bytes.h"
#include "bantam/kernels/conv/cuda/few_channels_tile.cuh"

namespace bantam::kernels::cuda {
namespace {

constexpr int kRows = static_cast<int>(kFewChannelsForwardRows);
constexpr int kRowsPerWarp = kRows / kFewWarps;
constexpr int kBlocksPerMultiprocessor = 3;

/// Two chunks of 8 channels are the 16 terms of one m16n8k16.
template <int kChunks>
constexpr int kSteps = (kTaps * kChunks + 1) / 2;

/// Shared memory of a block: fragments of weights, two tiles, and a chunk of zeros.
template <int kChunks, int kColumnTiles>
struct ForwardShared {
  static constexpr int kWeights = kSteps<kChunks> * kColumnTiles / 2 * 32 * 16;
  static constexpr int kTile = PatchTile<kChunks, kRows>::kBytes;
  static constexpr int kZeros = kWeights + 2 * kTile;
  static constexpr int kBytes = kZeros + kChunkBytes;
};

/// B fragments of all weights of a channel group: [step][tile pair][lane] 16 bytes. Absent chunks and channels are
/// zero. A row of w (taps, channels) is the chunks in their order.
template <int kChunks, int kColumnTiles>
__device__ void load_weights(const unsigned short* __restrict__ w, int first_channel, int out_channels,
                             std::uint32_t* fragments) {
  constexpr int kRowLength = kTaps * 8 * kChunks;
#pragma unroll 8
  for (int i = threadIdx.x; i < kSteps<kChunks> * kColumnTiles * 64; i += kFewThreads) {
    const int half = i % 2, lane = i / 4 % 32, n = i / 128 % (kColumnTiles / 2) * 2 + i / 2 % 2;
    const int chunk = i / (64 * kColumnTiles) * 2 + half, channel = first_channel + channel_of(n, lane / 4);
    std::uint32_t word = 0;
    if (chunk < kTaps * kChunks && channel < out_channels)
      word = *reinterpret_cast<const std::uint32_t*>(w + channel * kRowLength + chunk * 8 + lane % 4 * 2);
    fragments[i] = word;
  }
}

/// sums += patches of the warp's four rows of pixels · weights. `mine`: the lane's pixel of the first row (lane % 16).
/// Lanes from 16 on read the second chunk of each step; where there is none, zeros: weights of 0 would turn what is not
/// finite into NaN.
template <class T, int kChunks, int kColumnTiles>
__device__ void multiply_tile(const uint4* weights, std::uint32_t mine, std::uint32_t zeros,
                              float (&sums)[kRowsPerWarp][kColumnTiles][4]) {
  using Tile = PatchTile<kChunks, kRows>;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 0; step < kSteps<kChunks>; ++step) {
    const bool absent = 2 * step + 1 >= kTaps * kChunks && lane >= 16;
    const std::uint32_t at = mine + (lane < 16 ? Tile::offset_of(2 * step) : Tile::offset_of(2 * step + 1));
    uint4 b[kColumnTiles / 2];
#pragma unroll
    for (int n = 0; n < kColumnTiles / 2; ++n) b[n] = weights[(step * kColumnTiles / 2 + n) * 32 + lane];
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) {
      std::uint32_t a[4];
      load_matrices(a, absent ? zeros : at + r * Tile::kRowStep);
#pragma unroll
      for (int n = 0; n < kColumnTiles / 2; ++n) {
        WarpMma<T>::multiply_add(sums[r][2 * n], a, {b[n].x, b[n].y});
        WarpMma<T>::multiply_add(sums[r][2 * n + 1], a, {b[n].z, b[n].w});
      }
    }
  }
}

/// Stores the warp's four rows of pixels, whose first is at `place`.
template <class T, int kColumnTiles>
__device__ void store_tile(T* __restrict__ y, const FewChannelsConvolution& g, TilePlace place, int first_channel,
                           const float (&sums)[kRowsPerWarp][kColumnTiles][4]) {
  const int lane = threadIdx.x % 32, column = place.column + lane / 4, channel = first_channel + lane % 4 * 8;
  T* const to = y + ((place.image * g.out_h + place.row) * g.out_w + column) * g.out_channels + channel;
#pragma unroll
  for (int i = 0; i < 2 * kRowsPerWarp; ++i) {
    const int r = i / 2, half = i % 2;
    if (place.row + r >= g.out_h || column + 8 * half >= g.out_w) continue;
#pragma unroll
    for (int group = 0; group < kColumnTiles / 4; ++group) {
      if (channel + group * 32 < g.out_channels)
        *reinterpret_cast<Pack<T, 8>*>(to + (r * g.out_w + 8 * half) * g.out_channels + group * 32) =
            pixel_of<T, kColumnTiles>(sums[r], half, group);
    }
  }
}

/// Where an output goes: y, and for pooled ones the winners or null.
template <class T>
struct FewChannelsOutput {
  T* __restrict__ y;
  std::uint16_t* __restrict__ winner;
};

/// Four values of a window in row order to the maximum, and the first one's place: of two channels.
template <class Vector>
__device__ uint2 maximum_of(const Vector (&window)[4]) {
  Vector best = window[0];
  std::uint32_t winner = 0;
#pragma unroll
  for (std::uint32_t place = 1; place < 4; ++place) {
    const std::uint32_t exceeds = mask_exceeds(window[place], best);
    const std::uint32_t bits = choose(exceeds, bits_of(window[place]), bits_of(best));
    best = *reinterpret_cast<const Vector*>(&bits);
    winner = choose(exceeds, place * 0x10001u, winner);
  }
  return {bits_of(best), winner};
}

/// Stores the 2x2 maxima of the warp's four rows of pixels, whose first is at `place`. Lanes of neighbouring columns
/// exchange half of their pixels: the left one then has the whole window of columns 0 to 7, the right one of 8 to 15.
template <class T, int kColumnTiles>
__device__ void store_pooled_tile(const FewChannelsOutput<T>& to, const FewChannelsConvolution& g, TilePlace place,
                                  int first_channel, const float (&sums)[kRowsPerWarp][kColumnTiles][4]) {
  using Pair = HalfPair<T>;
  using Vector = typename Pair::Vector;
  const int lane = threadIdx.x % 32, pixel = lane / 4, channel = first_channel + lane % 4 * 8;
  const bool right = pixel % 2 == 1;
  const int pooled_h = g.out_h / 2, pooled_w = g.out_w / 2;
  const int column = place.column / 2 + pixel / 2 + (right ? kFewColumns / 4 : 0);
#pragma unroll
  for (int pair = 0; pair < kRowsPerWarp / 2; ++pair) {
    const int row = place.row / 2 + pair;
    const std::int64_t at = ((place.image * pooled_h + row) * pooled_w + column) * g.out_channels + channel;
#pragma unroll
    for (int group = 0; group < kColumnTiles / 4; ++group) {
      Pack<std::uint32_t, 4> best, winner;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        Vector window[4];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float(&s)[4] = sums[2 * pair + r][4 * group + j];
          const std::uint32_t first = bits_of(Pair::pack(s[0], s[1])), second = bits_of(Pair::pack(s[2], s[3]));
          const std::uint32_t own = right ? second : first;
          const std::uint32_t other = __shfl_xor_sync(0xffffffffu, right ? first : second, 4);
          window[2 * r] = Pair::of(right ? other : own);
          window[2 * r + 1] = Pair::of(right ? own : other);
        }
        const uint2 maximum = maximum_of(window);
        best.v[j] = maximum.x;
        winner.v[j] = maximum.y;
      }
      if (row >= pooled_h || column >= pooled_w || channel + group * 32 >= g.out_channels) continue;
      *reinterpret_cast<Pack<std::uint32_t, 4>*>(to.y + at + group * 32) = best;
      if (to.winner != nullptr) *reinterpret_cast<Pack<std::uint32_t, 4>*>(to.winner + at + group * 32) = winner;
    }
  }
}

/// blockIdx.y: a group of 8·kColumnTiles output channels. Blocks alternate over the tiles.
template <class T, int kChunks, int kColumnTiles, bool kPooled>
__global__ void __launch_bounds__(kFewThreads, kBlocksPerMultiprocessor)
    few_channels_forward(const T* __restrict__ x, const T* __restrict__ w, const FewChannelsOutput<T> to,
                         const FewChannelsConvolution g) {
  using Tile = PatchTile<kChunks, kRows>;
  using Shared = ForwardShared<kChunks, kColumnTiles>;
  extern __shared__ uint4 shared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int first_channel = static_cast<int>(blockIdx.y) * 8 * kColumnTiles;
  const std::uint32_t base = shared_address(shared), zeros = base + Shared::kZeros;
  std::uint32_t current = base + Shared::kWeights, other = current + Shared::kTile;
  Tile::copy(x, g, g.place_of(static_cast<int>(blockIdx.x)), current);
  commit_copies();
  load_weights<kChunks, kColumnTiles>(reinterpret_cast<const unsigned short*>(w), first_channel, g.out_channels,
                                      reinterpret_cast<std::uint32_t*>(shared));
  if (threadIdx.x == 0) shared[Shared::kZeros / 16] = make_uint4(0, 0, 0, 0);
  const std::uint32_t in_tile = warp * kRowsPerWarp * Tile::kRowStep + lane % 16 * Tile::kPixelStep;
#pragma unroll 1
  for (int tile = static_cast<int>(blockIdx.x); tile < g.tiles; tile += static_cast<int>(gridDim.x)) {
    wait_for_groups<0>();
    __syncthreads();  // this tile is here, and the other has been read
    const int next = tile + static_cast<int>(gridDim.x);
    if (next < g.tiles) Tile::copy(x, g, g.place_of(next), other);
    commit_copies();
    float sums[kRowsPerWarp][kColumnTiles][4] = {};
    multiply_tile<T, kChunks, kColumnTiles>(shared, current + in_tile, zeros, sums);
    TilePlace place = g.place_of(tile);
    place.row += warp * kRowsPerWarp;
    if constexpr (kPooled) {
      store_pooled_tile<T, kColumnTiles>(to, g, place, first_channel, sums);
    } else {
      store_tile<T, kColumnTiles>(to.y, g, place, first_channel, sums);
    }
    const std::uint32_t read = current;
    current = other;
    other = read;
  }
}

template <bool kPooled, class T, int kChunks, int kColumnTiles>
void launch(const Exec& exec, const FewChannelsConvolution& g, const void* x, const void* w,
            const FewChannelsOutput<T>& to) {
  constexpr int kBytes = ForwardShared<kChunks, kColumnTiles>::kBytes;
  auto* kernel = few_channels_forward<T, kChunks, kColumnTiles, kPooled>;
  allow_shared_bytes(exec, kernel, kBytes);
  int multiprocessors = 0;
  check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, exec.device.index),
             "cudaDeviceGetAttribute");
  const dim3 grid(static_cast<unsigned>(std::min(g.tiles, kBlocksPerMultiprocessor * multiprocessors)),
                  static_cast<unsigned>((g.out_channels + 8 * kColumnTiles - 1) / (8 * kColumnTiles)));
  kernel<<<grid, kFewThreads, kBytes, stream_of(exec)>>>(static_cast<const T*>(x), static_cast<const T*>(w), to, g);
  check_launch("few_channels_forward");
}

template <bool kPooled, class T>
void launch_typed(const Exec& exec, const Conv2dShape& shape, const void* x, const void* w, void* y,
                  std::uint16_t* winner) {
  const FewChannelsConvolution geometry(shape, kFewChannelsForwardRows);
  const FewChannelsOutput<T> to{static_cast<T*>(y), winner};
  with_chunks(shape.in_channels, [&](auto chunks) {
    constexpr int kChunks = decltype(chunks)::value;
    if (geometry.out_channels <= 32) return launch<kPooled, T, kChunks, 4>(exec, geometry, x, w, to);
    launch<kPooled, T, kChunks, 8>(exec, geometry, x, w, to);
  });
}

template <bool kPooled>
bool forward(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w, void* y,
             std::uint16_t* winner) {
  if (!has_warp_mma(exec) || !packs_aligned<std::uint32_t, 4>(x, w, y, winner)) return false;
  if (dtype == DType::float16) {
    launch_typed<kPooled, __half>(exec, shape, x, w, y, winner);
  } else {
    launch_typed<kPooled, __nv_bfloat16>(exec, shape, x, w, y, winner);
  }
  return true;
}

}  // namespace

bool few_channels_conv2d_forward(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w,
                                 void* y) {
  return forward<false>(exec, shape, dtype, x, w, y, nullptr);
}

bool few_channels_conv2d_pool_forward(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x,
                                      const void* w, void* y, std::uint16_t* winner) {
  return forward<true>(exec, shape, dtype, x, w, y, winner);
}

}  // namespace bantam::kernels::cuda
