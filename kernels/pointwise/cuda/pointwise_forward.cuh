// Pointwise convolution on tensor cores: y = a·wᵀ, where a is x, or x normalised and clamped as it arrives; the moments
// of y are computed as it is written.
#pragma once

#include "bantam/kernels/common/cuda/mma/warp_mma.cuh"
#include "bantam/kernels/common/cuda/reduce/pixel_sums.cuh"
#include "bantam/kernels/pointwise/cuda/shared_norm.cuh"
#include "bantam/kernels/pointwise/pointwise_parts.h"

namespace bantam::kernels::cuda {

template <class T>
struct PointwiseOperands {
  const T* x;  ///< (rows, in)
  const T* w;  ///< (out, in)
  T* y;        ///< (rows, out)
  std::int64_t rows;
  int in, out;        ///< multiples of 8; in is at most kPointwiseMostIn
  AffineSource norm;  ///< of x; not read by kernels without a norm of x
  Clamp clamp;        ///< after it
  float* partials;    ///< (parts, 3, out): origin, mean relative to it, Σ of squared differences; null: not wanted
  float* counts;      ///< (parts)
};

/// A block's tile: kPointwiseRows x kOut of y, kDepth channels of x at a time. All of the block's weights stay in
/// shared memory. Each of eight warps has 32 columns and kRowTiles times 16 rows.
template <int kOut, int kDepth>
struct PointwiseTile {
  static constexpr int kThreads = 256, kRows = static_cast<int>(kPointwiseRows);
  static constexpr int kWarpColumns = kOut / 32, kWarpRows = 8 / kWarpColumns, kRowTiles = kRows / kWarpRows / 16;
  static constexpr int kChunks = kDepth / 8;  ///< of 16 bytes, in a row of a stage
  static constexpr int kRowStep = kThreads / kChunks;
  static constexpr int kRowBytes = kDepth * 2, kStageBytes = kRows * kRowBytes, kWeightBytes = kOut * kRowBytes;
  static constexpr int kStages = 4;
  using Sums = float[kRowTiles][4][4];

  /// Where 16 bytes of a row of x lie in a stage: the eight rows that ldmatrix reads at once meet in no bank.
  __device__ static int x_offset(int row, int chunk) {
    const int turn = kDepth == 64 ? row & 7 : row >> 1 & 3;
    return row * kRowBytes + (chunk ^ turn) * 16;
  }
  /// The same of a row of w, which are read two by two, eight apart.
  __device__ static int w_offset(int row, int chunk) {
    const int turn = kDepth == 64 ? (row & 1) | (row >> 2 & 6) : row >> 3 & 3;
    return row * kRowBytes + (chunk ^ turn) * 16;
  }
};

/// Sums of one column of a warp's 32, of rows that it has written, relative to an origin: lane 4g + t keeps column
/// 8t + g.
struct ColumnSums {
  float sum = 0, squares = 0;

  /// Adds rows of eight columns a lane (8t to 8t + 7, different rows of equal t): each lane sums its own, then sends
  /// half of its columns to another lane three times.
  template <class T, int kRows>
  __device__ void add(const Pack<T, 8> (&rows)[kRows], const Pack<T, 8>& origin, int count) {
    float sums[2][8] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (i >= count) break;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const float v = to_float(rows[i].v[n]) - to_float(origin.v[n]);
        sums[0][n] += v;
        sums[1][n] = fmaf(v, v, sums[1][n]);
      }
    }
    sum += sum_by_pixels(sums[0]);
    squares += sum_by_pixels(sums[1]);
  }
};

/// Which stage comes next: depth by depth through a tile, tile by tile through a part.
struct PointwiseCursor {
  int tile;
  int depth = 0;
  __device__ void next(int in, int by, int parts) {
    depth += by;
    if (depth < in) return;
    depth = 0;
    tile += parts;
  }
};

/// Brings stages of x, and w, to shared memory; a thread copies the same chunk of
/// several rows, and normalises what it copied itself.
template <class T, class Tile>
struct PointwiseStages {
  const PointwiseOperands<T>& o;
  char* x_stages;
  int first_column;
  int row = static_cast<int>(threadIdx.x) / Tile::kChunks, chunk = static_cast<int>(threadIdx.x) % Tile::kChunks;

  __device__ char* stage(int index) const { return x_stages + index * Tile::kStageBytes; }
  __device__ void copy_x(const PointwiseCursor& at, int index) const {
    const int c = at.depth + chunk * 8;
    const std::int64_t first = std::int64_t{at.tile} * Tile::kRows + row;
#pragma unroll
    for (int r = 0; r < Tile::kRows; r += Tile::kRowStep) {
      const bool inside = first + r < o.rows && c < o.in;
      copy_async_or_zero(stage(index) + Tile::x_offset(row + r, chunk), inside ? o.x + (first + r) * o.in + c : o.x,
                         inside);
    }
  }
  __device__ void copy_w(int depth, char* to) const {
    const int c = depth + chunk * 8;
#pragma unroll
    for (int r = 0; r < Tile::kWeightBytes / Tile::kRowBytes; r += Tile::kRowStep) {
      const int column = first_column + row + r;
      const bool inside = column < o.out && c < o.in;
      copy_async_or_zero(to + Tile::w_offset(row + r, chunk),
                         inside ? o.w + static_cast<std::int64_t>(column) * o.in + c : o.w, inside);
    }
  }
  /// Normalises and clamps what this thread copied, in place.
  __device__ void normalise(const PointwiseCursor& at, int index, const SharedNorm& norm) const {
    const int c = at.depth + chunk * 8;
    if (c >= o.in) return;
    const Affine<8> affine = norm.load(c);
    const std::int64_t first = std::int64_t{at.tile} * Tile::kRows + row;
#pragma unroll
    for (int r = 0; r < Tile::kRows; r += Tile::kRowStep) {
      if (first + r >= o.rows) break;
      normalise_in_place(reinterpret_cast<T*>(stage(index) + Tile::x_offset(row + r, chunk)), affine, o.clamp);
    }
  }
};

/// A warp's share of a stage's GEMM. Column 8t + 2j + e of its 32 is column 2t + e of product j, so that a lane ends
/// up with eight neighbours.
template <class T, class Tile>
__device__ inline void multiply_stage(typename Tile::Sums& sums, std::uint32_t x_at, std::uint32_t w_at) {
#pragma unroll
  for (int k = 0; k < Tile::kChunks / 2; ++k) {
    const std::uint32_t x_here = x_at ^ k * 32, w_here = w_at ^ k * 32;  // whole lines apart from there
    std::uint32_t b[2][4];
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) load_matrices(b[pair], w_here + pair * 4 * Tile::kRowBytes);
#pragma unroll
    for (int i = 0; i < Tile::kRowTiles; ++i) {
      std::uint32_t a[4];
      load_matrices(a, x_here + i * 16 * Tile::kRowBytes);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        WarpMma<T>::multiply_add(sums[i][j], a, {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]});
    }
  }
}

/// Adds up a block's sums in the order of its rows of warps, and writes the part's moments of its columns.
template <class T, class Tile>
__device__ inline void write_pointwise_moments(const PointwiseOperands<T>& o, const ColumnSums& moments,
                                               const T* origin, char* shared, int first_column, int part, int parts) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int kColumns = Tile::kWarpColumns * 32;
  float2* const sums = reinterpret_cast<float2*>(shared);  // (kWarpRows, kColumns)
  __syncthreads();                                         // the stages are read
  const int mine = warp % Tile::kWarpColumns * 32 + lane % 4 * 8 + lane / 4;
  sums[warp / Tile::kWarpColumns * kColumns + mine] = {moments.sum, moments.squares};
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x), c = first_column + column;
  if (column >= kColumns || c >= o.out) return;
  std::int64_t rows = 0;
  for (std::int64_t first = std::int64_t{part} * Tile::kRows; first < o.rows;
       first += std::int64_t{parts} * Tile::kRows)
    rows += min(o.rows - first, std::int64_t{Tile::kRows});
  float sum = 0, squares = 0;
#pragma unroll
  for (int row = 0; row < Tile::kWarpRows; ++row) {
    sum += sums[row * kColumns + column].x;
    squares += sums[row * kColumns + column].y;
  }
  const float count = static_cast<float>(rows), mean = sum / count;
  float* const to = o.partials + std::int64_t{part} * 3 * o.out + c;
  to[0] = to_float(origin[column]);
  to[o.out] = mean;
  to[2 * o.out] = fmaxf(squares - sum * mean, 0.0f);
  if (c == 0) o.counts[part] = count;
}

/// Writes a warp's results, and adds them to the moments. The part's first row is the origin.
template <class T, class Tile>
__device__ inline void write_tile(const PointwiseOperands<T>& o, const typename Tile::Sums& sums, int tile, bool first,
                                  int first_column, T* origin, ColumnSums& moments) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int column = warp % Tile::kWarpColumns * 32 + lane % 4 * 8;
  const int row = warp / Tile::kWarpColumns * Tile::kRowTiles * 16 + lane / 4, c = first_column + column;
  Pack<T, 8> rows[2 * Tile::kRowTiles];  // 8 rows of y apart
#pragma unroll
  for (int i = 0; i < 2 * Tile::kRowTiles; ++i) {
#pragma unroll
    for (int n = 0; n < 8; ++n) rows[i].v[n] = from_float<T>(sums[i / 2][n / 2][2 * (i % 2) + n % 2]);
  }
  if (first && o.partials != nullptr) {
    if (row == 0) *reinterpret_cast<Pack<T, 8>*>(origin + column) = rows[0];
    __syncthreads();
  }
  const std::int64_t at = std::int64_t{tile} * Tile::kRows + row;
  const int inside =
      static_cast<int>(min(max(o.rows - at + 7, std::int64_t{0}) / 8, std::int64_t{2 * Tile::kRowTiles}));
  if (c < o.out) {
    T* const to = o.y + at * o.out + c;
#pragma unroll
    for (int i = 0; i < 2 * Tile::kRowTiles; ++i)
      if (i < inside) *reinterpret_cast<Pack<T, 8>*>(to + std::int64_t{i * 8} * o.out) = rows[i];
  }
  if (o.partials != nullptr) moments.add(rows, load_pack<8>(origin + column), inside);
}

/// Block b has column b % column_blocks of part b / column_blocks, whose tiles are part, part + parts, ...
template <class T, int kOut, int kDepth, bool kNormed>
__global__ void __launch_bounds__(256, kOut == 64 ? 3 : 2)
    pointwise_forward_kernel(PointwiseOperands<T> o, int column_blocks) {
  using Tile = PointwiseTile<kOut, kDepth>;
  extern __shared__ __align__(128) char shared[];
  const int first_column = static_cast<int>(blockIdx.x) % column_blocks * kOut;
  const int part = static_cast<int>(blockIdx.x) / column_blocks, parts = static_cast<int>(gridDim.x) / column_blocks;
  const int tiles = static_cast<int>((o.rows + Tile::kRows - 1) / Tile::kRows);
  const int depths = (o.in + kDepth - 1) / kDepth;
  char* const weights = shared + Tile::kStages * Tile::kStageBytes;
  T* const origin = reinterpret_cast<T*>(weights + depths * Tile::kWeightBytes);
  const SharedNorm norm = SharedNorm::at(origin + kOut, o.in);
  const PointwiseStages<T, Tile> stages{o, shared, first_column};
  const auto copy = [&](const PointwiseCursor& at, int stage) {
    if (at.tile < tiles) stages.copy_x(at, stage);
    commit_copies();  // an empty group keeps the count
  };
  for (int i = 0; i < depths; ++i) stages.copy_w(i * kDepth, weights + i * Tile::kWeightBytes);
  PointwiseCursor ahead{part}, here{part};
  for (int stage = 0; stage < Tile::kStages - 1; ++stage, ahead.next(o.in, kDepth, parts)) copy(ahead, stage);
  if constexpr (kNormed) {
    norm.fill(o.norm, o.in);
    __syncthreads();
  }

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int x_row = warp / Tile::kWarpColumns * Tile::kRowTiles * 16 + lane % 16;
  const int w_row = warp % Tile::kWarpColumns * 32 + lane % 8 / 2 * 8 + lane / 16 * 2 + lane % 2;
  const std::uint32_t x_at = shared_address(shared) + Tile::x_offset(x_row, lane / 16);
  const std::uint32_t w_at = shared_address(weights) + Tile::w_offset(w_row, lane / 8 % 2);
  ColumnSums moments;
  typename Tile::Sums sums = {};
  for (int stage = 0; here.tile < tiles; here.next(o.in, kDepth, parts)) {
    wait_for_groups<Tile::kStages - 2>();
    if constexpr (kNormed) stages.normalise(here, stage, norm);
    __syncthreads();
    copy(ahead, stage == 0 ? Tile::kStages - 1 : stage - 1);
    ahead.next(o.in, kDepth, parts);
    multiply_stage<T, Tile>(sums, x_at + stage * Tile::kStageBytes, w_at + here.depth / kDepth * Tile::kWeightBytes);
    stage = stage == Tile::kStages - 1 ? 0 : stage + 1;
    if (here.depth + kDepth < o.in) continue;
    write_tile<T, Tile>(o, sums, here.tile, here.tile == part, first_column, origin, moments);
#pragma unroll
    for (auto& rows : sums)
#pragma unroll
      for (auto& columns : rows)
#pragma unroll
        for (float& sum : columns) sum = 0;
  }
  if (o.partials != nullptr) write_pointwise_moments<T, Tile>(o, moments, origin, shared, first_column, part, parts);
}

}  // namespace bantam::kernels::cuda
