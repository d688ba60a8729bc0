// 3x3 convolution of 8 to 32 input channels: each warp multiplies the patches of 64 pixels, read from a tile of the
// image in shared memory, with all weights, whose fragments lie ready beside it, while the next tile is on its way.
#include "bantam/kernels/cuda/conv/few_channels_tile.cuh"
#include "bantam/kernels/cuda/device/check.h"
#include "bantam/kernels/cuda/device/shared_bytes.h"

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

/// blockIdx.y: a group of 8·kColumnTiles output channels. Blocks alternate over the tiles.
template <class T, int kChunks, int kColumnTiles>
__global__ void __launch_bounds__(kFewThreads, kBlocksPerMultiprocessor)
    few_channels_forward(const T* __restrict__ x, const T* __restrict__ w, T* __restrict__ y,
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
    store_tile<T, kColumnTiles>(y, g, place, first_channel, sums);
    const std::uint32_t read = current;
    current = other;
    other = read;
  }
}

template <class T, int kChunks, int kColumnTiles>
void launch(const Exec& exec, const FewChannelsConvolution& g, const void* x, const void* w, void* y) {
  constexpr int kBytes = ForwardShared<kChunks, kColumnTiles>::kBytes;
  auto* kernel = few_channels_forward<T, kChunks, kColumnTiles>;
  allow_shared_bytes(exec, kernel, kBytes);
  int multiprocessors = 0;
  check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, exec.device.index),
             "cudaDeviceGetAttribute");
  const dim3 grid(static_cast<unsigned>(std::min(g.tiles, kBlocksPerMultiprocessor * multiprocessors)),
                  static_cast<unsigned>((g.out_channels + 8 * kColumnTiles - 1) / (8 * kColumnTiles)));
  kernel<<<grid, kFewThreads, kBytes, stream_of(exec)>>>(static_cast<const T*>(x), static_cast<const T*>(w),
                                                         static_cast<T*>(y), g);
  check_launch("few_channels_forward");
}

template <class T>
void launch_typed(const Exec& exec, const Conv2dShape& shape, const void* x, const void* w, void* y) {
  const FewChannelsConvolution geometry(shape, kFewChannelsForwardRows);
  with_chunks(shape.in_channels, [&](auto chunks) {
    constexpr int kChunks = decltype(chunks)::value;
    if (geometry.out_channels <= 32) return launch<T, kChunks, 4>(exec, geometry, x, w, y);
    launch<T, kChunks, 8>(exec, geometry, x, w, y);
  });
}

}  // namespace

bool few_channels_conv2d_forward(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w,
                                 void* y) {
  if (!has_warp_mma(exec) || !packs_aligned<std::uint32_t, 4>(x, w, y)) return false;
  if (dtype == DType::float16) {
    launch_typed<__half>(exec, shape, x, w, y);
  } else {
    launch_typed<__nv_bfloat16>(exec, shape, x, w, y);
  }
  return true;
}

}  // namespace bantam::kernels::cuda
