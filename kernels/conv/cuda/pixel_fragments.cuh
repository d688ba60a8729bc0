// How the channels of output pixels lie in fragments of mma.sync and in shared memory, for convolutions on tensor
// cores.
#pragma once

#include "bantam/kernels/common/cuda/numeric.cuh"
#include "bantam/kernels/common/cuda/vectorized.cuh"

namespace bantam::kernels::cuda {

/// The output channel, of a group of 8·kColumnTiles, that column `column` of tile `n` computes: lane t then has 8
/// adjacent channels in four tiles, and stores 16 bytes at a time.
__device__ inline int channel_of(int n, int column) { return n / 4 * 32 + column / 2 * 8 + n % 4 * 2 + column % 2; }

/// A pixel's outputs (rows g and g + 8 of the warp's fragments are pixels), the lane's 8 channels of a group of 32.
template <class T, int kColumnTiles>
__device__ inline Pack<T, 8> pixel_of(const float (&sums)[kColumnTiles][4], int half, int group) {
  Pack<T, 8> pixel;
#pragma unroll
  for (int j = 0; j < 8; ++j) pixel.v[j] = from_float<T>(sums[4 * group + j / 2][half * 2 + j % 2]);
  return pixel;
}

inline constexpr int kChunkBytes = 16;  ///< 8 channels of a pixel

/// Where 8 channels of a pixel of dy lie in shared memory: rows of kChunks chunks, exchanged so that the same chunk of
/// 8 neighbouring pixels lies in all banks.
template <int kChunks>
__device__ inline int chunk_offset(int pixel, int chunk) {
  const int turned = chunk ^ (pixel / (8 / kChunks) % kChunks);
  return (pixel * kChunks + turned) * kChunkBytes;
}

}  // namespace bantam::kernels::cuda
