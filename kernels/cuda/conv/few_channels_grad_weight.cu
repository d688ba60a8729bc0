// Weight gradient of a 3x3 convolution of 8 to 32 input channels: dyᵀ · patches, a partial sum a thread block over its
// tiles, added in order.
#include "bantam/kernels/cuda/conv/few_channels_tile.cuh"
#include "bantam/kernels/cuda/device/check.h"
#include "bantam/kernels/cuda/device/shared_bytes.h"
#include "bantam/kernels/cuda/reduce/row_tiles.cuh"

namespace bantam::kernels::cuda {
namespace {

constexpr int kRows = static_cast<int>(kFewChannelsGradRows);
constexpr int kTilePixels = kRows * kFewColumns;

/// Tiles of 8 columns of dw (a chunk of a tap each) that a warp sums, and how many blocks a multiprocessor holds: with
/// 32 channels, the sums of 4 x 9 tiles need the registers of two.
template <int kChunks>
constexpr int kWarpTiles = (kTaps * kChunks + kFewWarps - 1) / kFewWarps;
template <int kChunks>
constexpr int kBlocks = kChunks < 4 ? 3 : 2;

/// A tile of x, and of dy with 16·kRowTiles channels, in shared memory: two of them, one is read while the next is on
/// its way.
template <int kChunks, int kRowTiles>
struct GradStage {
  using Tile = PatchTile<kChunks, kRows>;
  static constexpr int kDyChunks = 2 * kRowTiles, kDyBytes = kTilePixels * kDyChunks * kChunkBytes;
  static constexpr int kBytes = kDyBytes + Tile::kBytes;

  template <class T>
  __device__ static void copy(const T* __restrict__ x, const T* __restrict__ dy, const FewChannelsConvolution& g,
                              int tile, int first_channel, std::uint32_t to) {
    const TilePlace place = g.place_of(tile);
    Tile::copy(x, g, place, to + kDyBytes);
    constexpr int kAtOnce = kFewThreads / kDyChunks;
    const int chunk = static_cast<int>(threadIdx.x) % kDyChunks, channel = first_channel + 8 * chunk;
    const T* const image = dy + place.image * (static_cast<std::int64_t>(g.out_h) * g.out_w * g.out_channels);
#pragma unroll
    for (int k = 0; k < kTilePixels / kAtOnce; ++k) {
      const int pixel = k * kAtOnce + static_cast<int>(threadIdx.x) / kDyChunks;
      const int row = place.row + pixel / kFewColumns, column = place.column + pixel % kFewColumns;
      const bool inside = row < g.out_h && column < g.out_w && channel < g.out_channels;
      const T* from = image + ((row * g.out_w + column) * g.out_channels + channel);
      copy_async_part(to + chunk_offset<kDyChunks>(pixel, chunk), inside ? from : dy, inside ? kChunkBytes : 0);
    }
  }
};

/// sums += dyᵀ · patches of one tile. `patches`: addresses for load_matrices_transposed in a stage: two column tiles,
/// of 16 pixels each.
template <class T, int kChunks, int kRowTiles, int kLoads>
__device__ void multiply_tile(std::uint32_t stage, const int (&patches)[kLoads],
                              float (&sums)[kRowTiles][kWarpTiles<kChunks>][4]) {
  using Stage = GradStage<kChunks, kRowTiles>;
  const int lane = threadIdx.x % 32;
#pragma unroll 2
  for (int row = 0; row < kRows; ++row) {
    std::uint32_t b[kLoads][4];  // [.][2·(column tile % 2) + half of the pixels]
#pragma unroll
    for (int i = 0; i < kLoads; ++i) load_matrices_transposed(b[i], stage + patches[i] + row * Stage::Tile::kRowStep);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      std::uint32_t a[4];
      const int pixel = row * kFewColumns + lane / 16 * 8 + lane % 8;
      load_matrices_transposed(a, stage + chunk_offset<Stage::kDyChunks>(pixel, 2 * m + lane / 8 % 2));
#pragma unroll
      for (int n = 0; n < kWarpTiles<kChunks>; ++n)
        WarpMma<T>::multiply_add(sums[m][n], a, {b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]});
    }
  }
}

/// Stores a warp's sums, column tiles from `first` on, to a partial dw (out_channels, 9, 8·kChunks).
template <int kChunks, int kRowTiles>
__device__ void store_sums(float* to, int first, int first_channel, int out_channels,
                           const float (&sums)[kRowTiles][kWarpTiles<kChunks>][4]) {
  constexpr int kRowLength = kTaps * 8 * kChunks;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < kWarpTiles<kChunks>; ++n) {
    if (first + n >= kTaps * kChunks) continue;
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      const int m = i / 2, half = i % 2, channel = first_channel + 16 * m + lane / 4 + 8 * half;
      if (channel >= out_channels) continue;
      *reinterpret_cast<float2*>(to + channel * kRowLength + (first + n) * 8 + lane % 4 * 2) =
          float2{sums[m][n][2 * half], sums[m][n][2 * half + 1]};
    }
  }
}

/// partial dw of part blockIdx.x, 16·kRowTiles output channels from group blockIdx.y on; a warp has some column tiles.
template <class T, int kChunks, int kRowTiles>
__global__ void __launch_bounds__(kFewThreads, kBlocks<kChunks>)
    few_channels_grad_weight(const T* __restrict__ x, const T* __restrict__ dy, float* __restrict__ partials,
                             const FewChannelsConvolution g) {
  using Stage = GradStage<kChunks, kRowTiles>;
  extern __shared__ uint4 shared[];
  constexpr int kLoads = (kWarpTiles<kChunks> + 1) / 2;
  const int lane = threadIdx.x % 32, first = static_cast<int>(threadIdx.x) / 32 * kWarpTiles<kChunks>;
  const int first_channel = static_cast<int>(blockIdx.y) * 16 * kRowTiles;
  const int begin = static_cast<int>(part_begin(g.tiles, gridDim.x, blockIdx.x));
  const int end = static_cast<int>(part_begin(g.tiles, gridDim.x, blockIdx.x + 1));
  int patches[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i)  // absent tiles read the first; their sums are not stored
    patches[i] =
        Stage::kDyBytes + lane % 16 * Stage::Tile::kPixelStep + Stage::Tile::offset_of(first + 2 * i + lane / 16);
  std::uint32_t current = shared_address(shared), other = current + Stage::kBytes;
  Stage::copy(x, dy, g, begin, first_channel, current);
  commit_copies();
  float sums[kRowTiles][kWarpTiles<kChunks>][4] = {};
#pragma unroll 1
  for (int tile = begin; tile < end; ++tile) {
    wait_for_groups<0>();
    __syncthreads();  // this stage is here, and the other has been read
    if (tile + 1 < end) Stage::copy(x, dy, g, tile + 1, first_channel, other);
    commit_copies();
    multiply_tile<T, kChunks, kRowTiles>(current, patches, sums);
    const std::uint32_t read = current;
    current = other;
    other = read;
  }
  float* const to = partials + blockIdx.x * (static_cast<std::int64_t>(g.out_channels) * kTaps * 8 * kChunks);
  store_sums<kChunks, kRowTiles>(to, first, first_channel, g.out_channels, sums);
}

template <class T, int kChunks, int kRowTiles>
void launch(const Exec& exec, const FewChannelsConvolution& g, unsigned parts, const void* x, const void* dy,
            float* partials) {
  constexpr int kBytes = 2 * GradStage<kChunks, kRowTiles>::kBytes;
  auto* kernel = few_channels_grad_weight<T, kChunks, kRowTiles>;
  allow_shared_bytes(exec, kernel, kBytes);
  const dim3 grid(parts, static_cast<unsigned>((g.out_channels + 16 * kRowTiles - 1) / (16 * kRowTiles)));
  kernel<<<grid, kFewThreads, kBytes, stream_of(exec)>>>(static_cast<const T*>(x), static_cast<const T*>(dy), partials,
                                                         g);
  check_launch("few_channels_grad_weight");
}

template <class T>
void launch_typed(const Exec& exec, const Conv2dShape& shape, unsigned parts, const void* x, const void* dy,
                  float* partials) {
  const FewChannelsConvolution geometry(shape, kFewChannelsGradRows);
  with_chunks(shape.in_channels, [&](auto chunks) {
    constexpr int kChunks = decltype(chunks)::value;
    if (geometry.out_channels <= 32) return launch<T, kChunks, 2>(exec, geometry, parts, x, dy, partials);
    launch<T, kChunks, 4>(exec, geometry, parts, x, dy, partials);
  });
}

}  // namespace

bool few_channels_conv2d_grad_weight(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x,
                                     const void* dy, float* dw, bool accumulate, float* partials) {
  if (!has_warp_mma(exec) || !packs_aligned<std::uint32_t, 4>(x, dy, partials)) return false;
  const std::int64_t parts = few_channels_grad_weight_parts(shape);
  if (dtype == DType::float16) {
    launch_typed<__half>(exec, shape, static_cast<unsigned>(parts), x, dy, partials);
  } else {
    launch_typed<__nv_bfloat16>(exec, shape, static_cast<unsigned>(parts), x, dy, partials);
  }
  add_parts(exec, partials, parts, shape.w_elements(), WriteSum{dw, accumulate});
  return true;
}

}  // namespace bantam::kernels::cuda
