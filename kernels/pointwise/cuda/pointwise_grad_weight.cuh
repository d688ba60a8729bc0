// Weight gradient of a pointwise convolution on tensor cores: dw = dyᵀ·a, where a is x normalised and clamped as it
// arrives. Split-K: each part of the rows has a partial sum.
#pragma once

#include "bantam/kernels/pointwise/cuda/pointwise_forward.cuh"

namespace bantam::kernels::cuda {

template <class T>
struct PointwiseGradOperands {
  const T* dy;  ///< (rows, out)
  const T* x;   ///< (rows, in)
  std::int64_t rows;
  int out, in;  ///< multiples of 8
  AffineSource norm;
  Clamp clamp;
  float* partials;  ///< (parts, out, in)
};

/// A block's tile: kOut x kIn of dw. A warp sums 64 x 32 of it; warps that are left over share the rows of a stage.
template <int kOut, int kIn>
struct PointwiseGradTile {
  static constexpr int kThreads = 256, kWarpTiles = kOut / 64 * (kIn / 32), kSplits = 8 / kWarpTiles;
  static constexpr int kStageRows = kWarpTiles == 1 ? 128 : 64, kStages = kWarpTiles == 8 ? 3 : 4;
  static constexpr int kDyBytes = kStageRows * kOut * 2, kXBytes = kStageRows * kIn * 2;
  static constexpr int kStageBytes = kDyBytes + kXBytes;
  static constexpr int kSharedBytes =
      kStages * kStageBytes + SharedNorm::kVectors * static_cast<int>(kPointwiseMostIn * sizeof(float));
  static_assert(kSplits == 1 || kSharedBytes >= 8 * 64 * 32 * 4, "the warps' sums are added there");

  /// Where 16 bytes of a row of `kChunks` lie: the eight rows that ldmatrix reads at once meet in no bank.
  template <int kChunks>
  __device__ static int offset(int row, int chunk) {
    return (row * kChunks + (chunk ^ (kChunks >= 8 ? row & 7 : row >> 1 & 3))) * 16;
  }
};

/// One matrix's share of the stages: a thread copies the same chunk of several rows.
template <class T, int kColumns, class Tile>
struct GradStage {
  static constexpr int kChunks = kColumns / 8, kRowStep = Tile::kThreads / kChunks;
  const T* from;  ///< (rows, columns)
  std::int64_t rows;
  int columns, c;  ///< the matrix' columns; the first that this thread copies
  int row = static_cast<int>(threadIdx.x) / kChunks;

  __device__ GradStage(const T* matrix, std::int64_t rows, int columns, int first_column)
      : from(matrix), rows(rows), columns(columns), c(first_column + static_cast<int>(threadIdx.x) % kChunks * 8) {}
  __device__ char* place(char* stage, int r) const {
    return stage + Tile::template offset<kChunks>(row + r, static_cast<int>(threadIdx.x) % kChunks);
  }
  __device__ void copy(std::int64_t first, char* stage) const {
#pragma unroll
    for (int r = 0; r < Tile::kStageRows; r += kRowStep) {
      const bool inside = first + row + r < rows && c < columns;
      copy_async_or_zero(place(stage, r), inside ? from + (first + row + r) * columns + c : from, inside);
    }
  }
  /// body(place) for every chunk of the matrix that this thread copied.
  template <class Body>
  __device__ void each(std::int64_t first, char* stage, const Body& body) const {
#pragma unroll
    for (int r = 0; r < Tile::kStageRows; r += kRowStep) {
      if (first + row + r >= rows) break;
      body(place(stage, r));
    }
  }
  /// Normalises and clamps what this thread copied to the convolution's input.
  __device__ void normalise(std::int64_t first, char* stage, const SharedNorm& norm, Clamp clamp) const {
    if (c >= columns) return;
    const Affine<8> affine = norm.load(c);
    each(first, stage, [&](char* place) { normalise_in_place(reinterpret_cast<T*>(place), affine, clamp); });
  }
};

/// A warp's 64 x 32 sums: [16 rows of dw][8 columns][fragment].
using GradSums = float[4][4][4];

/// Adds the products of a warp's rows of a stage.
template <class T, int kOut, int kIn, class Tile>
__device__ inline void multiply_grad_stage(GradSums& sums, std::uint32_t dy_at, std::uint32_t x_at) {
#pragma unroll
  for (int k = 0; k < Tile::kStageRows / Tile::kSplits / 16; ++k) {
    std::uint32_t b[2][4];
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) load_matrices_transposed(b[pair], (x_at ^ pair * 32) + k * 16 * kIn * 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t a[4];
      load_matrices_transposed(a, (dy_at ^ i * 32) + k * 16 * kOut * 2);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        WarpMma<T>::multiply_add(sums[i][j], a, {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]});
    }
  }
}

/// Adds up the warps that shared rows, in their order: the first of them receives the sums.
template <class Tile>
__device__ inline void add_splits(GradSums& sums, int tile, int split, char* shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float* const all = reinterpret_cast<float*>(shared);  // (splits, tiles, 64 values, lanes)
  const auto place = [&](int of) { return all + (of * Tile::kWarpTiles + tile) * 64 * 32 + lane; };
  __syncthreads();  // the stages are read
#pragma unroll
  for (int i = 0; i < 64; ++i) place(split)[i * 32] = sums[i / 16][i / 4 % 4][i % 4];
  __syncthreads();
  if (split != 0) return;
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    float sum = 0;
    for (int of = 0; of < Tile::kSplits; ++of) sum += place(of)[i * 32];
    sums[i / 16][i / 4 % 4][i % 4] = sum;
  }
}

/// Writes a block's sums of the tile at (first_out, first_in), kIn columns wide, to its part.
template <class Tile, class T>
__device__ inline void write_grad_parts(const PointwiseGradOperands<T>& o, GradSums& sums, int part, int first_out,
                                        int first_in, int columns, char* shared) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_tile = warp % Tile::kWarpTiles, split = warp / Tile::kWarpTiles;
  if constexpr (Tile::kSplits > 1) add_splits<Tile>(sums, warp_tile, split, shared);
  if (split != 0) return;
  const int row = first_out + warp_tile / (columns / 32) * 64 + lane / 4;
  const int column = first_in + warp_tile % (columns / 32) * 32 + lane % 4 * 2;
  float* const to = o.partials + std::int64_t{part} * o.out * o.in;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (row + i * 8 < o.out && column + j * 8 < o.in)
        *reinterpret_cast<float2*>(to + (row + i * 8) * o.in + column + j * 8) = {sums[i / 2][j][i % 2 * 2],
                                                                                  sums[i / 2][j][i % 2 * 2 + 1]};
    }
  }
}

/// Block b has tile b % tiles of part b / tiles; a part has stages part, part + parts, ...
template <class T, int kOut, int kIn>
__global__ void __launch_bounds__(256, 2) pointwise_grad_weight_kernel(PointwiseGradOperands<T> o, int tiles) {
  using Tile = PointwiseGradTile<kOut, kIn>;
  extern __shared__ __align__(128) char shared[];
  const int tile = static_cast<int>(blockIdx.x) % tiles, part = static_cast<int>(blockIdx.x) / tiles;
  const int parts = static_cast<int>(gridDim.x) / tiles, in_tiles = (o.in + kIn - 1) / kIn;
  const int first_out = tile / in_tiles * kOut, first_in = tile % in_tiles * kIn;
  const SharedNorm norm = SharedNorm::at(shared + Tile::kStages * Tile::kStageBytes, o.in);
  const GradStage<T, kOut, Tile> dy(o.dy, o.rows, o.out, first_out);
  const GradStage<T, kIn, Tile> x(o.x, o.rows, o.in, first_in);
  const auto copy = [&](std::int64_t first, int stage) {
    if (first < o.rows) {
      dy.copy(first, shared + stage * Tile::kStageBytes);
      x.copy(first, shared + stage * Tile::kStageBytes + Tile::kDyBytes);
    }
    commit_copies();  // an empty group keeps the count
  };
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_tile = warp % Tile::kWarpTiles, split = warp / Tile::kWarpTiles;
  const int warp_out = warp_tile / (kIn / 32) * 64, warp_in = warp_tile % (kIn / 32) * 32;
  const int first_row = split * (Tile::kStageRows / Tile::kSplits);
  const std::uint32_t dy_at =
      shared_address(shared) +
      Tile::template offset<kOut / 8>(first_row + lane / 16 * 8 + lane % 8, warp_out / 8 + lane / 8 % 2);
  const std::uint32_t x_at =
      shared_address(shared) + Tile::kDyBytes +
      Tile::template offset<kIn / 8>(first_row + lane / 8 % 2 * 8 + lane % 8, warp_in / 8 + lane / 16);

  const std::int64_t step = std::int64_t{parts} * Tile::kStageRows;
  std::int64_t first = std::int64_t{part} * Tile::kStageRows, ahead = first;
  for (int stage = 0; stage < Tile::kStages - 1; ++stage, ahead += step) copy(ahead, stage);
  norm.fill(o.norm, o.in);
  __syncthreads();
  GradSums sums = {};
  for (int stage = 0; first < o.rows; first += step, ahead += step) {
    wait_for_groups<Tile::kStages - 2>();
    x.normalise(first, shared + stage * Tile::kStageBytes + Tile::kDyBytes, norm, o.clamp);
    __syncthreads();
    copy(ahead, stage == 0 ? Tile::kStages - 1 : stage - 1);
    multiply_grad_stage<T, kOut, kIn, Tile>(sums, dy_at + stage * Tile::kStageBytes, x_at + stage * Tile::kStageBytes);
    stage = stage == Tile::kStages - 1 ? 0 : stage + 1;
  }
  write_grad_parts<Tile>(o, sums, part, first_out, first_in, kIn, shared);
}

}  // namespace bantam::kernels::cuda
