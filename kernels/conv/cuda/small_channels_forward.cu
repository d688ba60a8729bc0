// Convolution of an image: each warp multiplies the patches of 64 pixels, read from a tile of the image in shared
// memory, with all weights, whose fragments lie ready beside it.
#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/common/cuda/shared_bytes.h"
#include "bantam/kernels/conv/cuda/image_moments.cuh"
#include "bantam/kernels/conv/cuda/image_tile.cuh"
#include "bantam/kernels/conv/cuda/pixel_fragments.cuh"
#include "bantam/kernels/elementwise/cuda/activation_functions.cuh"

namespace bantam::kernels::cuda {
namespace {

constexpr int kRowsPerWarp = kTileEdge / kImageWarps;
constexpr int kBlocksPerMultiprocessor = 3;

/// Two pairs of taps, of 4 channels each, are the 16 terms of one m16n8k16.
__host__ __device__ int steps_of(const ImageConvolution& g) { return (g.pairs() + 1) / 2; }

/// B fragments of all weights of a channel group: [step][tile pair][lane] 16 bytes. Absent taps and channels are zero.
template <int kColumnTiles>
__device__ void load_weights(const unsigned short* __restrict__ w, const ImageConvolution& g, int first_channel,
                             std::uint32_t* fragments) {
  for (int i = threadIdx.x; i < steps_of(g) * kColumnTiles * 64; i += kImageThreads) {
    const int half = i % 2, lane = i / 4 % 32, n = i / 128 % (kColumnTiles / 2) * 2 + i / 2 % 2;
    const TapPair pair(g, i / (64 * kColumnTiles) * 2 + half);
    const int column = pair.column + lane % 4 / 2, channel = first_channel + channel_of(n, lane / 4);
    std::uint32_t words[2] = {};
    if (pair.row < g.kernel_h && column < g.kernel_w && channel < g.out_channels) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int c = lane % 2 * 2 + k;
        if (c < g.channels) words[k] = w[((channel * g.kernel_h + pair.row) * g.kernel_w + column) * g.channels + c];
      }
    }
    fragments[i] = words[0] | words[1] << 16;
  }
}

/// Selects what a block adds to storing its outputs: nothing, moments of them, or bias and activation before.
enum class Extra : std::uint8_t { none, statistics, epilogue };
struct Extras {
  PartMoments parts;           ///< Extra::statistics: block x writes part x
  const void* bias = nullptr;  ///< Extra::epilogue: (out_channels), or null
  ActivationValues f{Activation::none, 0.0f};
};

/// The bias of a group of channels as floats, 0 where there is none.
template <class T>
__device__ void load_bias(const T* bias, int first_channel, int out_channels, int count, float* to) {
  for (int i = threadIdx.x; i < count; i += kImageThreads)
    to[i] = bias != nullptr && first_channel + i < out_channels ? to_float(bias[first_channel + i]) : 0.0f;
}

/// pixel_of after bias and activation: computed in float32 and rounded once. `bias`: of the lane's first 8 channels.
template <class T, int kColumnTiles>
__device__ Pack<T, 8> finished_pixel_of(const float (&sums)[kColumnTiles][4], int half, int group, const float* bias,
                                        const ActivationValues& f) {
  float values[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) values[j] = sums[4 * group + j / 2][half * 2 + j % 2] + bias[32 * group + j];
  f(values);
  Pack<T, 8> pixel;
#pragma unroll
  for (int j = 0; j < 8; ++j) pixel.v[j] = from_float<T>(values[j]);
  return pixel;
}

/// blockIdx.y: a group of 8·kColumnTiles output channels. Blocks alternate over the tiles.
template <class T, int kColumnTiles, Extra kExtra>
__global__ void __launch_bounds__(kImageThreads, kBlocksPerMultiprocessor)
    image_forward(const T* __restrict__ x, const T* __restrict__ w, T* __restrict__ y, const ImageConvolution g,
                  const Extras extras) {
  constexpr bool kStatistics = kExtra == Extra::statistics, kEpilogue = kExtra == Extra::epilogue;
  extern __shared__ uint4 shared[];
  constexpr int kGroups = kColumnTiles / 4;
  __shared__ int offsets[kMostTapPairs];
  __shared__ std::conditional_t<kStatistics, ImageMoments<kGroups>, NoMoments> moments;
  __shared__ float bias[kEpilogue ? 8 * kColumnTiles : 1];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, steps = steps_of(g);
  uint4* const image = shared + steps * kColumnTiles / 2 * 32;
  uint4* const rows = image + g.tile_bytes() / 16;
  const int first_channel = static_cast<int>(blockIdx.y) * 8 * kColumnTiles;
  load_weights<kColumnTiles>(reinterpret_cast<const unsigned short*>(w), g, first_channel,
                             reinterpret_cast<std::uint32_t*>(shared));
  if (threadIdx.x < kMostTapPairs) {
    const int pair = static_cast<int>(threadIdx.x);
    offsets[pair] = pair < g.pairs() ? TapPair(g, pair).offset(g) : 0;  // absent pairs have weight 0
  }
  copy_image_rows(x, g, place_of(g, static_cast<int>(blockIdx.x)), shared_address(rows));
  commit_copies();
  if constexpr (kEpilogue)
    load_bias(static_cast<const T*>(extras.bias), first_channel, g.out_channels, 8 * kColumnTiles, bias);
  const int row_step = g.stride_h * g.tile_w * kPixelBytes;
  const std::uint32_t mine = shared_address(image) + warp * kRowsPerWarp * row_step + pixel_offset(g, lane % 16);
  const int channel = first_channel + lane % 4 * 8;
  if constexpr (kStatistics) moments.clear();
  int pixels = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < g.tiles; tile += static_cast<int>(gridDim.x)) {
    const TilePlace place = place_of(g, tile);
    wait_for_groups<0>();
    __syncthreads();  // rows are here, and the last tile has been read
    spread_image_tile(reinterpret_cast<const std::uint32_t*>(rows), g, place, reinterpret_cast<std::uint64_t*>(image));
    __syncthreads();
    const int next = tile + static_cast<int>(gridDim.x);
    if (next < g.tiles) copy_image_rows(x, g, place_of(g, next), shared_address(rows));
    commit_copies();
    float sums[kRowsPerWarp][kColumnTiles][4] = {};
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      const std::uint32_t at = mine + offsets[2 * step + lane / 16];
      uint4 b[kColumnTiles / 2];
#pragma unroll
      for (int n = 0; n < kColumnTiles / 2; ++n) b[n] = shared[(step * kColumnTiles / 2 + n) * 32 + lane];
#pragma unroll
      for (int r = 0; r < kRowsPerWarp; ++r) {
        std::uint32_t a[4];
        load_matrices(a, at + r * row_step);
#pragma unroll
        for (int n = 0; n < kColumnTiles / 2; ++n) {
          WarpMma<T>::multiply_add(sums[r][2 * n], a, {b[n].x, b[n].y});
          WarpMma<T>::multiply_add(sums[r][2 * n + 1], a, {b[n].z, b[n].w});
        }
      }
    }
    if constexpr (kStatistics) {
      if (tile == static_cast<int>(blockIdx.x)) {
        if (warp == 0 && lane < 4)
#pragma unroll
          for (int group = 0; group < kGroups; ++group)
            moments.set_origin(group, pixel_of<T, kColumnTiles>(sums[0], 0, group));
        __syncthreads();
      }
      pixels += min(g.out_h - place.row, kTileEdge) * min(g.out_w - place.column, kTileEdge);
    }
    const int row = place.row + warp * kRowsPerWarp, column = place.column + lane / 4;
    T* const to = y + ((place.image * g.out_h + row) * g.out_w + column) * g.out_channels + channel;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      LaneSums lane_sums;
#pragma unroll
      for (int i = 0; i < 2 * kRowsPerWarp; ++i) {
        const int r = i / 2, half = i % 2;
        if (row + r >= g.out_h || column + 8 * half >= g.out_w) continue;
        Pack<T, 8> pixel;
        if constexpr (kEpilogue) {
          pixel = finished_pixel_of<T, kColumnTiles>(sums[r], half, group, bias + lane % 4 * 8, extras.f);
        } else {
          pixel = pixel_of<T, kColumnTiles>(sums[r], half, group);
        }
        if (channel + group * 32 < g.out_channels)
          *reinterpret_cast<Pack<T, 8>*>(to + (r * g.out_w + 8 * half) * g.out_channels + group * 32) = pixel;
        if constexpr (kStatistics) lane_sums.add(pixel, moments.origin_of(group));
      }
      if constexpr (kStatistics) moments.add(group, lane_sums);
    }
  }
  if constexpr (kStatistics) moments.write(extras.parts, static_cast<int>(blockIdx.x), first_channel, pixels);
}

template <class T, int kColumnTiles, Extra kExtra>
void launch(const Exec& exec, const ImageConvolution& g, const void* x, const void* w, void* y, const Extras& extras) {
  const int bytes = steps_of(g) * kColumnTiles / 2 * 32 * 16 + g.tile_bytes() + g.row_bytes();
  auto* kernel = image_forward<T, kColumnTiles, kExtra>;
  allow_shared_bytes(exec, kernel, bytes);
  int multiprocessors = 0;
  check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, exec.device.index),
             "cudaDeviceGetAttribute");
  const int blocks = kExtra == Extra::statistics ? static_cast<int>(extras.parts.parts)
                                                 : std::min(g.tiles, kBlocksPerMultiprocessor * multiprocessors);
  const dim3 grid(static_cast<unsigned>(blocks),
                  static_cast<unsigned>((g.out_channels + 8 * kColumnTiles - 1) / (8 * kColumnTiles)));
  kernel<<<grid, kImageThreads, static_cast<std::size_t>(bytes), stream_of(exec)>>>(
      static_cast<const T*>(x), static_cast<const T*>(w), static_cast<T*>(y), g, extras);
  check_launch("image_forward");
}

template <Extra kExtra>
bool launch_any(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w, void* y,
                const Extras& extras) {
  if (!has_warp_mma(exec) || !packs_aligned<std::uint32_t, 4>(x, y)) return false;
  const ImageConvolution geometry(shape);
  const auto run = [&](auto tag) {
    using T = decltype(tag);
    if (geometry.out_channels <= 32) return launch<T, 4, kExtra>(exec, geometry, x, w, y, extras);
    launch<T, 8, kExtra>(exec, geometry, x, w, y, extras);
  };
  dtype == DType::float16 ? run(__half{}) : run(__nv_bfloat16{});
  return true;
}

}  // namespace

bool image_conv2d_forward(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w,
                          void* y, const PartMoments* parts) {
  if (parts == nullptr) return launch_any<Extra::none>(exec, shape, dtype, x, w, y, {});
  return launch_any<Extra::statistics>(exec, shape, dtype, x, w, y, {.parts = *parts});
}

bool image_conv2d_epilogue(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w,
                           const Epilogue& epilogue, void* y) {
  if (epilogue.residual != nullptr) return false;
  return launch_any<Extra::epilogue>(exec, shape, dtype, x, w, y,
                                     {.bias = epilogue.bias, .f = {epilogue.f.kind, epilogue.f.slope}});
}

}  // namespace bantam::kernels::cuda
