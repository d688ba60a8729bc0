// Weight gradient of a convolution of an image: dyᵀ · patches, a partial sum a thread block over its tiles, added in
// order.
#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/common/cuda/reduce/row_tiles.cuh"
#include "bantam/kernels/common/cuda/shared_bytes.h"
#include "bantam/kernels/conv/cuda/image_tile.cuh"
#include "bantam/kernels/conv/cuda/pixel_fragments.cuh"

namespace bantam::kernels::cuda {
namespace {

constexpr int kStageRows = 4;  // rows of a tile that one copy of dy brings
constexpr int kStages = 4;     // stages of dy in shared memory: one is read while three are on their way
constexpr int kStagePixels = kStageRows * kTileEdge;
constexpr int kStagesPerTile = kTileEdge / kStageRows;

/// Begins the copy of rows of a tile's dy (64 pixels, 8·kChunks channels), zeros outside the output and its channels. A
/// thread copies the same chunk of the same column in several rows.
template <int kChunks, class T>
__device__ void copy_dy(const T* __restrict__ dy, const ImageConvolution& g, TilePlace place, int first_row,
                        int first_channel, std::uint32_t to) {
  constexpr int kAtOnce = kImageThreads / kChunks, kRowsAtOnce = kAtOnce / kTileEdge;
  const int pixel = static_cast<int>(threadIdx.x) / kChunks, chunk = static_cast<int>(threadIdx.x) % kChunks;
  const int channel = first_channel + 8 * chunk, column = place.column + pixel % kTileEdge;
  const int row = place.row + first_row + pixel / kTileEdge;
  const bool present = column < g.out_w && channel < g.out_channels;
  const T* from = dy + ((place.image * g.out_h + row) * g.out_w + column) * g.out_channels + channel;
  to += chunk_offset<kChunks>(pixel, chunk);
#pragma unroll
  for (int i = 0; i < kStageRows / kRowsAtOnce; ++i) {
    const bool inside = present && row + i * kRowsAtOnce < g.out_h;
    copy_async_part(to + i * kAtOnce * kChunks * kChunkBytes, inside ? from : dy, inside ? 16 : 0);
    from += kRowsAtOnce * g.out_w * g.out_channels;
  }
}

/// partial dw of part blockIdx.x, 16·kRowTiles output channels from group blockIdx.y on; a warp has kPairs tap pairs.
template <class T, int kRowTiles, int kPairs>
__global__ void __launch_bounds__(kImageThreads, 3)
    image_grad_weight(const T* __restrict__ x, const T* __restrict__ dy, float* __restrict__ partials,
                      const ImageConvolution g) {
  extern __shared__ uint4 shared[];
  constexpr int kChunks = 2 * kRowTiles, kLoads = (kPairs + 1) / 2, kStageBytes = kStagePixels * kChunks * kChunkBytes;
  uint4* const image = shared + kStages * kStagePixels * kChunks;
  uint4* const rows = image + g.tile_bytes() / 16;
  const std::uint32_t dy_at = shared_address(shared);
  const int lane = threadIdx.x % 32, first_pair = static_cast<int>(threadIdx.x) / 32 * kPairs;
  const int first_channel = static_cast<int>(blockIdx.y) * 16 * kRowTiles;
  const int begin = static_cast<int>(part_begin(g.tiles, gridDim.x, blockIdx.x));
  const int stages = (static_cast<int>(part_begin(g.tiles, gridDim.x, blockIdx.x + 1)) - begin) * kStagesPerTile;
  const auto copy_stage = [&](int stage) {
    if (stage < stages) {
      copy_dy<kChunks>(dy, g, place_of(g, begin + stage / kStagesPerTile), stage % kStagesPerTile * kStageRows,
                       first_channel, dy_at + stage % kStages * kStageBytes);
    }
    commit_copies();
  };
  std::uint32_t patches[kLoads];  // addresses for load_matrices_transposed: two pairs, of 16 pixels each
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const int pair = first_pair + 2 * i + lane / 16;
    const int offset = pair < g.pairs() ? TapPair(g, pair).offset(g) : 0;  // sums of absent pairs are not stored
    patches[i] = shared_address(image) + pixel_offset(g, lane % 16) + offset;
  }
  copy_image_rows(x, g, place_of(g, begin), shared_address(rows));
  for (int stage = 0; stage < kStages - 1; ++stage) copy_stage(stage);
  float sums[kRowTiles][kPairs][4] = {};
#pragma unroll 1
  for (int stage = 0; stage < stages; ++stage) {
    wait_for_groups<kStages - 2>();
    __syncthreads();  // this stage is here, and the one before has been read
    if (stage % kStagesPerTile == 0) {
      const int tile = begin + stage / kStagesPerTile;
      spread_image_tile(reinterpret_cast<const std::uint32_t*>(rows), g, place_of(g, tile),
                        reinterpret_cast<std::uint64_t*>(image));
      __syncthreads();
      if (stage + kStagesPerTile < stages) copy_image_rows(x, g, place_of(g, tile + 1), shared_address(rows));
    }
    copy_stage(stage + kStages - 1);
    const std::uint32_t stage_at = dy_at + stage % kStages * kStageBytes;
#pragma unroll 2
    for (int row = 0; row < kStageRows; ++row) {
      std::uint32_t b[kLoads][4];  // [.][2·(pair % 2) + half of the pixels]
      const int image_row = stage % kStagesPerTile * kStageRows + row;
      const std::uint32_t row_at = image_row * g.stride_h * g.tile_w * kPixelBytes;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) load_matrices_transposed(b[i], patches[i] + row_at);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        std::uint32_t a[4];
        const int pixel = row * kTileEdge + lane / 16 * 8 + lane % 8;
        load_matrices_transposed(a, stage_at + chunk_offset<kChunks>(pixel, 2 * m + lane / 8 % 2));
#pragma unroll
        for (int n = 0; n < kPairs; ++n)
          WarpMma<T>::multiply_add(sums[m][n], a, {b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]});
      }
    }
  }
  float* const to =
      partials + blockIdx.x * (static_cast<std::int64_t>(g.out_channels) * g.kernel_h * g.kernel_w * g.channels);
#pragma unroll
  for (int n = 0; n < kPairs; ++n) {
    const TapPair pair(g, first_pair + n);
    const int tap_column = pair.column + lane % 4 / 2;
    if (pair.row >= g.kernel_h || tap_column >= g.kernel_w) continue;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int channel = first_channel + 16 * m + lane / 4 + i / 2 * 8, c = lane % 2 * 2 + i % 2;
        if (channel >= g.out_channels || c >= g.channels) continue;
        to[((channel * g.kernel_h + pair.row) * g.kernel_w + tap_column) * g.channels + c] = sums[m][n][i];
      }
    }
  }
}

template <class T, int kRowTiles, int kPairs>
void launch(const Exec& exec, const ImageConvolution& g, unsigned parts, const void* x, const void* dy,
            float* partials) {
  const int bytes = kStages * kStagePixels * 2 * kRowTiles * kChunkBytes + g.tile_bytes() + g.row_bytes();
  auto* kernel = image_grad_weight<T, kRowTiles, kPairs>;
  allow_shared_bytes(exec, kernel, bytes);
  const dim3 grid(parts, static_cast<unsigned>((g.out_channels + 16 * kRowTiles - 1) / (16 * kRowTiles)));
  kernel<<<grid, kImageThreads, static_cast<std::size_t>(bytes), stream_of(exec)>>>(
      static_cast<const T*>(x), static_cast<const T*>(dy), partials, g);
  check_launch("image_grad_weight");
}

/// Pairs for each warp: 2 for 3 x 3 kernels, 4 for 5 x 5, 7 for 7 x 7; sizes between use the next.
template <class T, int kRowTiles>
void launch_pairs(const Exec& exec, const ImageConvolution& g, unsigned parts, const void* x, const void* dy,
                  float* partials) {
  const int pairs = (g.pairs() + kImageWarps - 1) / kImageWarps;
  if (pairs <= 2) return launch<T, kRowTiles, 2>(exec, g, parts, x, dy, partials);
  if (pairs <= 4) return launch<T, kRowTiles, 4>(exec, g, parts, x, dy, partials);
  launch<T, kRowTiles, 7>(exec, g, parts, x, dy, partials);
}

template <class T>
void launch_typed(const Exec& exec, const ImageConvolution& g, unsigned parts, const void* x, const void* dy,
                  float* partials) {
  if (g.out_channels <= 32) return launch_pairs<T, 2>(exec, g, parts, x, dy, partials);
  launch_pairs<T, 4>(exec, g, parts, x, dy, partials);
}

}  // namespace

bool image_conv2d_grad_weight(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* dy,
                              float* dw, bool accumulate, float* partials) {
  if (!has_warp_mma(exec) || !packs_aligned<std::uint32_t, 4>(x, dy)) return false;
  const ImageConvolution geometry(shape);
  const std::int64_t parts = image_grad_weight_parts(shape);
  if (dtype == DType::float16) {
    launch_typed<__half>(exec, geometry, static_cast<unsigned>(parts), x, dy, partials);
  } else {
    launch_typed<__nv_bfloat16>(exec, geometry, static_cast<unsigned>(parts), x, dy, partials);
  }
  add_parts(exec, partials, parts, shape.w_elements(), WriteSum{dw, accumulate});
  return true;
}

}  // namespace bantam::kernels::cuda
