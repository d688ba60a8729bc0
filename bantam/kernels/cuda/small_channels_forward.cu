// Convolution of an image: each warp multiplies the patches of 64 pixels, read from a tile of the image in shared
// memory, with all weights, whose fragments lie ready beside it.
#include "bantam/kernels/cuda/image_tile.cuh"
#include "bantam/kernels/cuda/numeric.cuh"
#include "bantam/kernels/cuda/vectorized.cuh"

namespace bantam::kernels::cuda {
namespace {

constexpr int kTapsAtOnce = 4;  // of 4 channels: the 16 terms of one m16n8k16
constexpr int kRowsPerWarp = kTileEdge / kImageWarps;
constexpr int kBlocksPerMultiprocessor = 3;

/// The output channel, of a group of 8·kColumnTiles, that column `column` of tile `n` computes: lane t then has 8
/// adjacent channels in four tiles, and stores 16 bytes at a time.
__device__ int channel_of(int n, int column) { return n / 4 * 32 + column / 2 * 8 + n % 4 * 2 + column % 2; }

__host__ __device__ int steps_of(const ImageConvolution& g) {
  return (g.kernel_h * g.kernel_w + kTapsAtOnce - 1) / kTapsAtOnce;
}

/// B fragments of all weights of a channel group: [step][tile pair][lane] 16 bytes. Absent taps, channels are zero.
template <int kColumnTiles>
__device__ void load_weights(const unsigned short* __restrict__ w, const ImageConvolution& g, int first_channel,
                             uint2* fragments) {
  const int taps = g.kernel_h * g.kernel_w;
  for (int i = threadIdx.x; i < steps_of(g) * kColumnTiles * 32; i += kImageThreads) {
    const int half = i % 2, lane = i / 2 % 32, n = i / 64 % (kColumnTiles / 2) * 2 + half;
    const int tap = i / (32 * kColumnTiles) * kTapsAtOnce + lane % 4;
    const int channel = first_channel + channel_of(n, lane / 4);
    std::uint32_t words[4] = {};
    if (tap < taps && channel < g.out_channels) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (c < g.channels) words[c] = w[(static_cast<std::int64_t>(channel) * taps + tap) * g.channels + c];
      }
    }
    fragments[i] = {words[0] | words[1] << 16, words[2] | words[3] << 16};
  }
}

template <class T>
__device__ std::uint32_t packed(float low, float high) {
  Pack<T, 2> pair;
  pair.v[0] = from_float<T>(low);
  pair.v[1] = from_float<T>(high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

/// A pixel's outputs (rows g and g + 8 of the warp's fragments are pixels), 8 channels at a time.
template <class T, int kColumnTiles>
__device__ void store_pixel(const float (&sums)[kColumnTiles][4], int half, T* y, int channels_left) {
#pragma unroll
  for (int n = 0; n < kColumnTiles; n += 4) {
    if (channel_of(n, 0) + static_cast<int>(threadIdx.x % 4) * 8 >= channels_left) continue;
    uint4 pack;
    pack.x = packed<T>(sums[n][half * 2], sums[n][half * 2 + 1]);
    pack.y = packed<T>(sums[n + 1][half * 2], sums[n + 1][half * 2 + 1]);
    pack.z = packed<T>(sums[n + 2][half * 2], sums[n + 2][half * 2 + 1]);
    pack.w = packed<T>(sums[n + 3][half * 2], sums[n + 3][half * 2 + 1]);
    *reinterpret_cast<uint4*>(y + n * 8 + threadIdx.x % 4 * 8) = pack;
  }
}

/// Where each tap of each step lies in the tile of the image, in pixels from the first.
__device__ void load_offsets(const ImageConvolution& g, int* offsets) {
  const int taps = g.kernel_h * g.kernel_w;
  for (int tap = threadIdx.x; tap < steps_of(g) * kTapsAtOnce; tap += kImageThreads) {
    offsets[tap] = tap < taps ? tap / g.kernel_w * g.tile_w + tap % g.kernel_w : 0;  // absent taps have weight 0
  }
}

/// blockIdx.y: a group of 8·kColumnTiles output channels. Blocks take tiles in turn.
template <class T, int kColumnTiles>
__global__ void __launch_bounds__(kImageThreads, kBlocksPerMultiprocessor)
    image_forward(const T* __restrict__ x, const T* __restrict__ w, T* __restrict__ y, const ImageConvolution g) {
  extern __shared__ uint4 shared[];
  __shared__ int offsets[kMostImageTaps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, steps = steps_of(g);
  auto* image = reinterpret_cast<std::uint64_t*>(shared + steps * kColumnTiles / 2 * 32);
  const int first_channel = static_cast<int>(blockIdx.y) * 8 * kColumnTiles;
  load_weights<kColumnTiles>(reinterpret_cast<const unsigned short*>(w), g, first_channel,
                             reinterpret_cast<uint2*>(shared));
  load_offsets(g, offsets);
  const std::uint64_t* mine = image + warp * kRowsPerWarp * g.stride_h * g.tile_w + lane / 4 * g.stride_w;
  for (int tile = static_cast<int>(blockIdx.x); tile < g.tiles; tile += static_cast<int>(gridDim.x)) {
    const TilePlace place = place_of(g, tile);
    __syncthreads();  // the last tile has been read
    load_image_tile<false>(x, g, place, image);
    __syncthreads();
    float sums[kRowsPerWarp][kColumnTiles][4] = {};
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      uint4 b[kColumnTiles / 2];
#pragma unroll
      for (int n = 0; n < kColumnTiles / 2; ++n) b[n] = shared[(step * kColumnTiles / 2 + n) * 32 + lane];
#pragma unroll
      for (int r = 0; r < kRowsPerWarp; ++r) {
        const std::uint64_t* at = mine + r * g.stride_h * g.tile_w + offsets[step * kTapsAtOnce + lane % 4];
        const uint2 low = *reinterpret_cast<const uint2*>(at);
        const uint2 high = *reinterpret_cast<const uint2*>(at + 8 * g.stride_w);
        const std::uint32_t a[4] = {low.x, high.x, low.y, high.y};
#pragma unroll
        for (int n = 0; n < kColumnTiles / 2; ++n) {
          warp_mma<T>(sums[r][2 * n], a, b[n].x, b[n].y);
          warp_mma<T>(sums[r][2 * n + 1], a, b[n].z, b[n].w);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) {
      const int row = place.row + warp * kRowsPerWarp + r;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = place.column + lane / 4 + 8 * half;
        if (row >= g.out_h || column >= g.out_w) continue;
        const std::int64_t pixel = (place.image * g.out_h + row) * g.out_w + column;
        store_pixel<T, kColumnTiles>(sums[r], half, y + pixel * g.out_channels + first_channel,
                                     g.out_channels - first_channel);
      }
    }
  }
}

template <class T, int kColumnTiles>
void launch(const Exec& exec, const ImageConvolution& g, const void* x, const void* w, void* y) {
  const int bytes = steps_of(g) * kColumnTiles / 2 * 32 * 16 + g.tile_bytes();
  auto* kernel = image_forward<T, kColumnTiles>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "cudaFuncSetAttribute");
  int multiprocessors = 0;
  check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, exec.device.index),
             "cudaDeviceGetAttribute");
  const dim3 grid(static_cast<unsigned>(std::min(g.tiles, kBlocksPerMultiprocessor * multiprocessors)),
                  static_cast<unsigned>((g.out_channels + 8 * kColumnTiles - 1) / (8 * kColumnTiles)));
  kernel<<<grid, kImageThreads, static_cast<std::size_t>(bytes), stream_of(exec)>>>(
      static_cast<const T*>(x), static_cast<const T*>(w), static_cast<T*>(y), g);
  check_launch("image_forward");
}

template <class T>
void launch_typed(const Exec& exec, const ImageConvolution& g, const void* x, const void* w, void* y) {
  if (g.out_channels <= 32) return launch<T, 4>(exec, g, x, w, y);
  launch<T, 8>(exec, g, x, w, y);
}

}  // namespace

bool image_conv2d_forward(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w,
                          void* y) {
  if (!has_warp_mma(exec) || reinterpret_cast<std::uintptr_t>(y) % 16 != 0) return false;
  const ImageConvolution geometry(shape);
  if (dtype == DType::float16) {
    launch_typed<__half>(exec, geometry, x, w, y);
  } else {
    launch_typed<__nv_bfloat16>(exec, geometry, x, w, y);
  }
  return true;
}

}  // namespace bantam::kernels::cuda
