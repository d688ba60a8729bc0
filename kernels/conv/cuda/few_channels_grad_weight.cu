// Weight gradient of a 3x3 convolution of 8 to 32 input channels: dyᵀ · patches, a partial sum a thread block over its
// tiles, added in order. dy may be that of the outputs' 2x2 maxima.
#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/common/cuda/mma/half_pair.cuh"
#include "bantam/kernels/common/cuda/reduce/row_tiles.cuh"
#include "bantam/kernels/common/cuda/shared_bytes.h"
#include "bantam/kernels/conv/cuda/few_channels_tile.cuh"

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

/// Gradients of outputs, dense or of their 2x2 maxima with the winners.
template <class T>
struct OutputGradients {
  const T* __restrict__ dy;
  const std::uint16_t* __restrict__ winner;
};

/// A tile of x, and of dy with 16·kRowTiles channels, in shared memory: two of them, one is read while the next is on
/// its way. Pooled, dy has a quarter of the pixels, and the winners lie after it.
template <int kChunks, int kRowTiles, bool kPooled>
struct GradStage {
  using Tile = PatchTile<kChunks, kRows>;
  static constexpr int kDyWidth = kPooled ? kFewColumns / 2 : kFewColumns;
  static constexpr int kDyPixels = kPooled ? kTilePixels / 4 : kTilePixels;
  static constexpr int kDyChunks = 2 * kRowTiles, kOneBytes = kDyPixels * kDyChunks * kChunkBytes;
  static constexpr int kDyBytes = kPooled ? 2 * kOneBytes : kOneBytes;
  static constexpr int kBytes = kDyBytes + Tile::kBytes;

  template <class T>
  __device__ static void copy(const T* __restrict__ x, const OutputGradients<T>& from, const FewChannelsConvolution& g,
                              int tile, int first_channel, std::uint32_t to) {
    const TilePlace place = g.place_of(tile);
    Tile::copy(x, g, place, to + kDyBytes);
    constexpr int kAtOnce = kFewThreads / kDyChunks, kShrink = kPooled ? 2 : 1;
    static_assert(kDyPixels % kAtOnce == 0);
    const int height = g.out_h / kShrink, width = g.out_w / kShrink;
    const int chunk = static_cast<int>(threadIdx.x) % kDyChunks, channel = first_channel + 8 * chunk;
    const std::int64_t image = place.image * (static_cast<std::int64_t>(height) * width * g.out_channels);
#pragma unroll
    for (int k = 0; k < kDyPixels / kAtOnce; ++k) {
      const int pixel = k * kAtOnce + static_cast<int>(threadIdx.x) / kDyChunks;
      const int row = place.row / kShrink + pixel / kDyWidth, column = place.column / kShrink + pixel % kDyWidth;
      const bool inside = row < height && column < width && channel < g.out_channels;
      const std::int64_t at = inside ? image + ((row * width + column) * g.out_channels + channel) : 0;
      const std::uint32_t here = to + chunk_offset<kDyChunks>(pixel, chunk);
      copy_async_part(here, from.dy + at, inside ? kChunkBytes : 0);
      if constexpr (kPooled) copy_async_part(here + kOneBytes, from.winner + at, inside ? kChunkBytes : 0);
    }
  }
};

/// Which of a row's 16 pixels is term `term` of its sums. Pooled, terms t and t + 8 are the two of window t, so that
/// one load of dy has both; their order is such that eight neighbouring terms of x lie in different banks.
template <bool kPooled>
__device__ int pixel_of_term(int term) {
  const int window = term % 8;
  return kPooled ? 2 * window + (term / 8 ^ window / 4) : term;
}

/// dyᵀ (32 channels from chunk 4·`pair` on, a row's 16 pixels): A of two row tiles.
template <int kChunks, int kRowTiles>
__device__ void load_gradients(std::uint32_t (&a)[2][4], std::uint32_t stage, int row, int pair) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    const int pixel = row * kFewColumns + lane / 16 * 8 + lane % 8;
    load_matrices_transposed(a[m], stage + chunk_offset<2 * kRowTiles>(pixel, 4 * pair + 2 * m + lane / 8 % 2));
  }
}

/// The same of a row of windows: dy where the pixel is the window's winner, else 0.
template <int kChunks, int kRowTiles>
__device__ void load_pooled_gradients(std::uint32_t (&a)[2][4], std::uint32_t stage, int row, int pair) {
  using Stage = GradStage<kChunks, kRowTiles, true>;
  const int lane = threadIdx.x % 32;
  std::uint32_t dy[4], winner[4];  // of 8 channels each, two windows a lane
  const std::uint32_t at =
      stage + chunk_offset<2 * kRowTiles>(row / 2 * Stage::kDyWidth + lane % 8, 4 * pair + lane / 8);
  load_matrices_transposed(dy, at);
  load_matrices_transposed(winner, at + Stage::kOneBytes);
  const std::uint32_t side = lane % 4 / 2;  // the side of terms 0 to 7 (pixel_of_term); the others have the other one
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t place = 2 * (row % 2) + (side ^ i / 2);
      a[m][i] = dy[2 * m + i % 2] & mask_equal_numbers(winner[2 * m + i % 2], place * 0x10001u);
    }
  }
}

/// sums += dyᵀ · patches of one tile. `patches`: addresses for load_matrices_transposed in a stage: two column tiles,
/// of 16 pixels each.
template <class T, int kChunks, int kRowTiles, bool kPooled, int kLoads>
__device__ void multiply_tile(std::uint32_t stage, const int (&patches)[kLoads],
                              float (&sums)[kRowTiles][kWarpTiles<kChunks>][4]) {
  using Stage = GradStage<kChunks, kRowTiles, kPooled>;
#pragma unroll(kPooled ? 1 : 2)  // registers
  for (int row = 0; row < kRows; ++row) {
    std::uint32_t b[kLoads][4];  // [.][2·(column tile % 2) + half of the pixels]
#pragma unroll
    for (int i = 0; i < kLoads; ++i) load_matrices_transposed(b[i], stage + patches[i] + row * Stage::Tile::kRowStep);
#pragma unroll
    for (int pair = 0; pair < kRowTiles / 2; ++pair) {
      std::uint32_t a[2][4];
      if constexpr (kPooled) {
        load_pooled_gradients<kChunks, kRowTiles>(a, stage, row, pair);
      } else {
        load_gradients<kChunks, kRowTiles>(a, stage, row, pair);
      }
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int n = 0; n < kWarpTiles<kChunks>; ++n)
          WarpMma<T>::multiply_add(sums[2 * pair + m][n], a[m], {b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]});
      }
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
template <class T, int kChunks, int kRowTiles, bool kPooled>
__global__ void __launch_bounds__(kFewThreads, kBlocks<kChunks>)
    few_channels_grad_weight(const T* __restrict__ x, const OutputGradients<T> from, float* __restrict__ partials,
                             const FewChannelsConvolution g) {
  using Stage = GradStage<kChunks, kRowTiles, kPooled>;
  extern __shared__ uint4 shared[];
  constexpr int kLoads = (kWarpTiles<kChunks> + 1) / 2;
  const int lane = threadIdx.x % 32, first = static_cast<int>(threadIdx.x) / 32 * kWarpTiles<kChunks>;
  const int first_channel = static_cast<int>(blockIdx.y) * 16 * kRowTiles;
  const int begin = static_cast<int>(part_begin(g.tiles, gridDim.x, blockIdx.x));
  const int end = static_cast<int>(part_begin(g.tiles, gridDim.x, blockIdx.x + 1));
  int patches[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i)  // absent tiles read the first; their sums are not stored
    patches[i] = Stage::kDyBytes + pixel_of_term<kPooled>(lane % 16) * Stage::Tile::kPixelStep +
                 Stage::Tile::offset_of(first + 2 * i + lane / 16);
  std::uint32_t current = shared_address(shared), other = current + Stage::kBytes;
  Stage::copy(x, from, g, begin, first_channel, current);
  commit_copies();
  float sums[kRowTiles][kWarpTiles<kChunks>][4] = {};
#pragma unroll 1
  for (int tile = begin; tile < end; ++tile) {
    wait_for_groups<0>();
    __syncthreads();  // this stage is here, and the other has been read
    if (tile + 1 < end) Stage::copy(x, from, g, tile + 1, first_channel, other);
    commit_copies();
    multiply_tile<T, kChunks, kRowTiles, kPooled>(current, patches, sums);
    const std::uint32_t read = current;
    current = other;
    other = read;
  }
  float* const to = partials + blockIdx.x * (static_cast<std::int64_t>(g.out_channels) * kTaps * 8 * kChunks);
  store_sums<kChunks, kRowTiles>(to, first, first_channel, g.out_channels, sums);
}

template <bool kPooled, class T, int kChunks, int kRowTiles>
void launch(const Exec& exec, const FewChannelsConvolution& g, unsigned parts, const void* x,
            const OutputGradients<T>& from, float* partials) {
  constexpr int kBytes = 2 * GradStage<kChunks, kRowTiles, kPooled>::kBytes;
  auto* kernel = few_channels_grad_weight<T, kChunks, kRowTiles, kPooled>;
  allow_shared_bytes(exec, kernel, kBytes);
  const dim3 grid(parts, static_cast<unsigned>((g.out_channels + 16 * kRowTiles - 1) / (16 * kRowTiles)));
  kernel<<<grid, kFewThreads, kBytes, stream_of(exec)>>>(static_cast<const T*>(x), from, partials, g);
  check_launch("few_channels_grad_weight");
}

template <bool kPooled, class T>
void launch_typed(const Exec& exec, const Conv2dShape& shape, unsigned parts, const void* x,
                  const OutputGradients<T>& from, float* partials) {
  const FewChannelsConvolution geometry(shape, kFewChannelsGradRows);
  with_chunks(shape.in_channels, [&](auto chunks) {
    constexpr int kChunks = decltype(chunks)::value;
    if (geometry.out_channels <= 32) return launch<kPooled, T, kChunks, 2>(exec, geometry, parts, x, from, partials);
    launch<kPooled, T, kChunks, 4>(exec, geometry, parts, x, from, partials);
  });
}

/// Where dw goes, through partial sums.
struct WeightGradient {
  float* dw;
  bool accumulate;
  float* partials;
};

template <bool kPooled>
bool grad_weight(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* dy,
                 const std::uint16_t* winner, const WeightGradient& to) {
  if (!has_warp_mma(exec) || !packs_aligned<std::uint32_t, 4>(x, dy, winner, to.partials)) return false;
  const std::int64_t parts = few_channels_grad_weight_parts(shape);
  const auto blocks = static_cast<unsigned>(parts);
  if (dtype == DType::float16) {
    launch_typed<kPooled, __half>(exec, shape, blocks, x, {static_cast<const __half*>(dy), winner}, to.partials);
  } else {
    launch_typed<kPooled, __nv_bfloat16>(exec, shape, blocks, x, {static_cast<const __nv_bfloat16*>(dy), winner},
                                         to.partials);
  }
  add_parts(exec, to.partials, parts, shape.w_elements(), WriteSum{to.dw, to.accumulate});
  return true;
}

}  // namespace

bool few_channels_conv2d_grad_weight(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x,
                                     const void* dy, float* dw, bool accumulate, float* partials) {
  return grad_weight<false>(exec, shape, dtype, x, dy, nullptr, {dw, accumulate, partials});
}

bool few_channels_conv2d_pool_grad_weight(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x,
                                          const void* dy, const std::uint16_t* winner, float* dw, bool accumulate,
                                          float* partials) {
  return grad_weight<true>(exec, shape, dtype, x, dy, winner, {dw, accumulate, partials});
}

}  // namespace bantam::kernels::cuda
