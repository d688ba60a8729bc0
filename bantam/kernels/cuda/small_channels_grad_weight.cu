// Weight gradient of a convolution of an image: dyᵀ · patches, a partial sum a thread block over its tiles, added in
// order.
#include "bantam/kernels/cuda/image_tile.cuh"
#include "bantam/kernels/cuda/row_tiles.cuh"

namespace bantam::kernels::cuda {
namespace {

constexpr int kTilePixels = kTileEdge * kTileEdge;
constexpr int kChunkBytes = 16;  // 8 channels of dy

/// Where 8 channels of a pixel of dy lie in shared memory: rows of kChunks pieces, exchanged so that the same piece of
/// 8 neighbouring pixels lies in all banks.
template <int kChunks>
__device__ int chunk_offset(int pixel, int chunk) {
  const int turned = chunk ^ (pixel / (8 / kChunks) % kChunks);
  return (pixel * kChunks + turned) * kChunkBytes;
}

/// Begins the copy of a tile's dy (256 pixels, 8·kChunks channels), zeros outside the output and its channels.
template <int kChunks, class T>
__device__ void copy_dy(const T* __restrict__ dy, const ImageConvolution& g, TilePlace place, int first_channel,
                        std::uint32_t to) {
#pragma unroll
  for (int i = threadIdx.x; i < kTilePixels * kChunks; i += kImageThreads) {
    const int pixel = i / kChunks, chunk = i % kChunks, channel = first_channel + 8 * chunk;
    const int row = place.row + pixel / kTileEdge, column = place.column + pixel % kTileEdge;
    const bool inside = row < g.out_h && column < g.out_w && channel < g.out_channels;
    const std::int64_t at = ((place.image * g.out_h + row) * g.out_w + column) * g.out_channels + channel;
    copy_async(to + chunk_offset<kChunks>(pixel, chunk), dy + (inside ? at : 0), inside);
  }
}

/// Column tiles of the product are pairs of neighbouring taps (of 4 channels each): which one.
struct TapPair {
  __device__ TapPair(const ImageConvolution& g, int index) {
    const int pairs = (g.kernel_w + 1) / 2;
    row = index / pairs;
    column = index % pairs * 2;
  }
  int row, column;
};

/// Byte offset in the image tile of tap pair `index` at pixel 8·half + lane % 8 of an output row: this lane's address
/// for load_transposed. Pairs at odd pixels (odd strides only) lie in the second copy, one pixel lower.
template <bool kTwice>
__device__ int patch_offset(const ImageConvolution& g, int index, int half, int second) {
  const TapPair tap(g, index);
  if (tap.row >= g.kernel_h) return 0;  // no such pair: its sums are not stored
  const int pixel = tap.row * g.tile_w + tap.column + (8 * half + static_cast<int>(threadIdx.x) % 8) * g.stride_w;
  const bool odd = kTwice && pixel % 2 == 1;
  return odd ? second + (pixel - 1) * kPixelBytes : pixel * kPixelBytes;
}

/// partial dw of part blockIdx.x, 16·kRowTiles output channels from group blockIdx.y on; a warp has kPairs tap pairs.
template <class T, int kRowTiles, int kPairs, bool kTwice>
__global__ void __launch_bounds__(kImageThreads, 3)
    image_grad_weight(const T* __restrict__ x, const T* __restrict__ dy, float* __restrict__ partials,
                      const ImageConvolution g, const int second) {
  extern __shared__ uint4 shared[];
  constexpr int kChunks = 2 * kRowTiles, kLoads = (kPairs + 1) / 2;
  auto* image = reinterpret_cast<std::uint64_t*>(shared + kTilePixels * kChunks);
  const std::uint32_t dy_at = shared_address(shared), image_at = shared_address(image);
  const int lane = threadIdx.x % 32, first_pair = static_cast<int>(threadIdx.x) / 32 * kPairs;
  const int first_channel = static_cast<int>(blockIdx.y) * 16 * kRowTiles;
  int offsets[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const int pair = 2 * i + lane / 16;
    offsets[i] = pair < kPairs ? patch_offset<kTwice>(g, first_pair + pair, lane / 8 % 2, second) : 0;
  }
  float sums[kRowTiles][kPairs][4] = {};
  const int end = static_cast<int>(part_begin(g.tiles, gridDim.x, blockIdx.x + 1));
  for (int tile = static_cast<int>(part_begin(g.tiles, gridDim.x, blockIdx.x)); tile < end; ++tile) {
    const TilePlace place = place_of(g, tile);
    __syncthreads();  // the last tile has been read
    copy_dy<kChunks>(dy, g, place, first_channel, dy_at);
    load_image_tile<kTwice>(x, g, place, image, second);
    wait_copies();
    __syncthreads();
#pragma unroll 2
    for (int row = 0; row < kTileEdge; ++row) {
      std::uint32_t b[kLoads][4];  // [.][2·(pair % 2) + half of the pixels]
      const std::uint32_t row_at = image_at + row * g.stride_h * g.tile_w * kPixelBytes;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) load_transposed(b[i], row_at + offsets[i]);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        std::uint32_t a[4];
        const int pixel = row * kTileEdge + lane / 16 * 8 + lane % 8;
        load_transposed(a, dy_at + chunk_offset<kChunks>(pixel, 2 * m + lane / 8 % 2));
#pragma unroll
        for (int n = 0; n < kPairs; ++n) warp_mma<T>(sums[m][n], a, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
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

template <class T, int kRowTiles, int kPairs, bool kTwice>
void launch(const Exec& exec, const ImageConvolution& g, unsigned parts, const void* x, const void* dy,
            float* partials) {
  // The second copy begins half a row of banks away, so that odd and even pixels do not meet in a bank.
  const int second = kTwice ? (g.tile_bytes() + 127) / 128 * 128 + 64 : 0;
  const int bytes = kTilePixels * 2 * kRowTiles * kChunkBytes + second + g.tile_bytes();
  auto* kernel = image_grad_weight<T, kRowTiles, kPairs, kTwice>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "cudaFuncSetAttribute");
  const dim3 grid(parts, static_cast<unsigned>((g.out_channels + 16 * kRowTiles - 1) / (16 * kRowTiles)));
  kernel<<<grid, kImageThreads, static_cast<std::size_t>(bytes), stream_of(exec)>>>(
      static_cast<const T*>(x), static_cast<const T*>(dy), partials, g, second);
  check_launch("image_grad_weight");
}

/// Pairs for each warp: 2 for 3 x 3 kernels, 4 for 5 x 5, 7 for 7 x 7; what lies between takes the next.
template <class T, int kRowTiles, bool kTwice>
void launch_pairs(const Exec& exec, const ImageConvolution& g, unsigned parts, const void* x, const void* dy,
                  float* partials) {
  const int pairs = (g.kernel_h * ((g.kernel_w + 1) / 2) + kImageWarps - 1) / kImageWarps;
  if (pairs <= 2) return launch<T, kRowTiles, 2, kTwice>(exec, g, parts, x, dy, partials);
  if (pairs <= 4) return launch<T, kRowTiles, 4, kTwice>(exec, g, parts, x, dy, partials);
  launch<T, kRowTiles, 7, kTwice>(exec, g, parts, x, dy, partials);
}

template <class T>
void launch_typed(const Exec& exec, const ImageConvolution& g, unsigned parts, const void* x, const void* dy,
                  float* partials) {
  const bool odd = g.stride_w % 2 == 1;
  if (g.out_channels <= 32) {
    if (odd) return launch_pairs<T, 2, true>(exec, g, parts, x, dy, partials);
    return launch_pairs<T, 2, false>(exec, g, parts, x, dy, partials);
  }
  if (odd) return launch_pairs<T, 4, true>(exec, g, parts, x, dy, partials);
  launch_pairs<T, 4, false>(exec, g, parts, x, dy, partials);
}

}  // namespace

bool image_conv2d_grad_weight(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* dy,
                              float* dw, bool accumulate, float* partials) {
  if (!has_warp_mma(exec) || reinterpret_cast<std::uintptr_t>(dy) % 16 != 0) return false;
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
