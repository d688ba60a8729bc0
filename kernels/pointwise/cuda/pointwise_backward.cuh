// Backward of a pointwise convolution between norms on tensor cores, in one pass: dw = dyᵀ·a and da = dy·w, where a is
// x normalised and clamped as it arrives, and dy is computed from a norm's dz and totals as that arrives, where a norm
// reads y.
#pragma once

#include "bantam/kernels/pointwise/cuda/pointwise_grad_weight.cuh"

namespace bantam::kernels::cuda {

template <class T>
struct PointwiseBackwardOperands {
  PointwiseGradOperands<T> grad;  ///< its dy is dz where a norm reads y
  const T* w;                     ///< (out, in)
  T* da;                          ///< (rows, in); null: not wanted
  const T* y;                     ///< (rows, out), input of the norm after; null: no norm
  AffineSource norm_after;
  const float* totals;  ///< (2, out): Σ dz, Σ dz·x̂ of the norm after
};

/// The terms of InputGradient in shared memory: a norm's input gradient is computed from them and dz.
struct SharedGradient {
  float* mean;
  float* factor;
  float* slope;
  float* constant;

  static constexpr int kVectors = 4;
  static __device__ SharedGradient at(void* shared, int channels) {
    float* const begin = static_cast<float*>(shared);
    return {begin, begin + channels, begin + 2 * channels, begin + 3 * channels};
  }
  __device__ void fill(const AffineSource& norm, const float* totals, float per_row, int channels) const {
    for (int c = static_cast<int>(threadIdx.x); c < channels; c += static_cast<int>(blockDim.x)) {
      const Affine<1> affine = norm.load<1>(c);
      mean[c] = affine.mean[0];
      factor[c] = affine.factor[0];
      slope[c] = -per_row * affine.factor[0] * norm.spread[c] * totals[channels + c];
      constant[c] = -per_row * affine.factor[0] * totals[c];
    }
  }
};

/// A block has all of dw. Each of eight warps computes 16 x 32 of a stage's da.
template <int kOut, int kIn, bool kNormed>
struct PointwiseBackwardTile {
  static constexpr int kThreads = 256, kWarpTiles = kOut / 64 * (kIn / 32), kSplits = 8 / kWarpTiles;
  static constexpr int kStageRows = 16 * 8 / (kIn / 32);
  static constexpr int kDyBytes = kStageRows * kOut * 2, kXBytes = kStageRows * kIn * 2;
  static constexpr int kStageBytes = kDyBytes * (kNormed ? 2 : 1) + kXBytes, kWeightBytes = kOut * kIn * 2;
  static constexpr int kVectorBytes = (SharedGradient::kVectors * kOut + SharedNorm::kVectors * kIn) * 4;
  static constexpr int kFits = (112 * 1024 - kWeightBytes - kVectorBytes) / kStageBytes,
                       kStages = kFits < 4 ? kFits : 4;
  static constexpr int kStagesBytes = kStages * kStageBytes > (kSplits > 1 ? 65536 : 0) ? kStages* kStageBytes : 65536;
  static constexpr int kSharedBytes = kStagesBytes + kWeightBytes + kVectorBytes;
  static_assert(kStages >= 2 && kSplits * (kStageRows / kSplits / 16) * 16 == kStageRows);

  template <int kChunks>
  __device__ static int offset(int row, int chunk) {
    return PointwiseGradTile<kOut, kIn>::template offset<kChunks>(row, chunk);
  }
  /// The byte offset of a chunk in row `row` of the turned weights: rows are read two by two, eight apart.
  __device__ static int weight_offset(int row, int chunk) {
    return (row * (kOut / 8) + (chunk ^ ((row & 1) | (row >> 2 & 6)))) * 16;
  }
};

/// w turned: rows of `in`; zeros outside.
template <class T, int kOut, int kIn, class Tile>
__device__ inline void load_turned_weights(const PointwiseBackwardOperands<T>& o, char* to) {
  for (int i = static_cast<int>(threadIdx.x); i < kOut * (kIn / 8); i += Tile::kThreads) {
    const int out = i % kOut, in = i / kOut * 8;
    Pack<T, 8> eight{};
    if (out < o.grad.out && in < o.grad.in) eight = load_pack<8>(o.w + std::int64_t{out} * o.grad.in + in);
#pragma unroll
    for (int n = 0; n < 8; ++n)
      *reinterpret_cast<T*>(to + Tile::weight_offset(in + n, out / 8) + out % 8 * 2) = eight.v[n];
  }
}

/// Replaces dz of what this thread copied by dy, with y from the end of the stage.
template <class T, class Tile, class Stage>
__device__ inline void make_gradient(const Stage& dy, std::int64_t first, char* stage, const SharedGradient& norm) {
  if (dy.c >= dy.columns) return;
  float mean[8], factor[8], slope[8], constant[8];
  unpack<8>(norm.mean + dy.c, mean);
  unpack<8>(norm.factor + dy.c, factor);
  unpack<8>(norm.slope + dy.c, slope);
  unpack<8>(norm.constant + dy.c, constant);
  dy.each(first, stage, [&](char* place) {
    float values[8], y[8];
    unpack<8>(reinterpret_cast<const T*>(place), values);
    unpack<8>(reinterpret_cast<const T*>(place + Tile::kDyBytes + Tile::kXBytes), y);
#pragma unroll
    for (int n = 0; n < 8; ++n) values[n] = fmaf(factor[n], values[n], fmaf(slope[n], y[n] - mean[n], constant[n]));
    repack<8>(values, reinterpret_cast<T*>(place));
  });
}

/// A warp's 16 x 32 of da.
template <class T, int kOut, int kIn, class Tile>
__device__ inline void write_input_gradient(const PointwiseBackwardOperands<T>& o, std::int64_t first,
                                            std::uint32_t dy_at, std::uint32_t w_at) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  float sums[4][4] = {};
#pragma unroll
  for (int k = 0; k < kOut / 16; ++k) {
    std::uint32_t a[4], b[2][4];
    load_matrices(a, dy_at ^ k * 32);
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) load_matrices(b[pair], (w_at ^ k * 32) + pair * 4 * kOut * 2);
#pragma unroll
    for (int j = 0; j < 4; ++j) WarpMma<T>::multiply_add(sums[j], a, {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]});
  }
  const int c = warp % (kIn / 32) * 32 + lane % 4 * 8;
  const std::int64_t row = first + warp / (kIn / 32) * 16 + lane / 4;
  if (c >= o.grad.in) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + half * 8 >= o.grad.rows) break;
    float values[8];
#pragma unroll
    for (int n = 0; n < 8; ++n) values[n] = sums[n / 2][half * 2 + n % 2];
    repack<8>(values, o.da + (row + half * 8) * o.grad.in + c);
  }
}

/// Part b has stages b, b + parts, ...; partial sums of dw go to (parts, out, in).
template <class T, int kOut, int kIn, bool kNormed>
__global__ void __launch_bounds__(256, 2) pointwise_backward_kernel(PointwiseBackwardOperands<T> o) {
  using Tile = PointwiseBackwardTile<kOut, kIn, kNormed>;
  extern __shared__ __align__(128) char shared[];
  const GradStage<T, kOut, Tile> dy(o.grad.dy, o.grad.rows, o.grad.out, 0), y(o.y, o.grad.rows, o.grad.out, 0);
  const GradStage<T, kIn, Tile> x(o.grad.x, o.grad.rows, o.grad.in, 0);
  char* const weights = shared + Tile::kStagesBytes;
  const SharedNorm ahead = SharedNorm::at(weights + Tile::kWeightBytes, o.grad.in);
  const SharedGradient norm_after = SharedGradient::at(ahead.shift + o.grad.in, o.grad.out);
  const auto copy = [&](std::int64_t first, int stage) {
    char* const to = shared + stage * Tile::kStageBytes;
    if (first < o.grad.rows) {
      dy.copy(first, to);
      x.copy(first, to + Tile::kDyBytes);
      if constexpr (kNormed) y.copy(first, to + Tile::kDyBytes + Tile::kXBytes);
    }
    commit_copies();  // an empty group keeps the count
  };
  const std::int64_t step = std::int64_t{gridDim.x} * Tile::kStageRows;
  std::int64_t first = std::int64_t{blockIdx.x} * Tile::kStageRows, later = first;
  for (int stage = 0; stage < Tile::kStages - 1; ++stage, later += step) copy(later, stage);
  ahead.fill(o.grad.norm, o.grad.in);
  if constexpr (kNormed) norm_after.fill(o.norm_after, o.totals, 1.0f / static_cast<float>(o.grad.rows), o.grad.out);
  load_turned_weights<T, kOut, kIn, Tile>(o, weights);
  __syncthreads();

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_tile = warp % Tile::kWarpTiles, split = warp / Tile::kWarpTiles;
  const int warp_out = warp_tile / (kIn / 32) * 64, warp_in = warp_tile % (kIn / 32) * 32;
  const int first_row = split * (Tile::kStageRows / Tile::kSplits);
  const std::uint32_t base = shared_address(shared);
  const std::uint32_t dy_at =
      base + Tile::template offset<kOut / 8>(first_row + lane / 16 * 8 + lane % 8, warp_out / 8 + lane / 8 % 2);
  const std::uint32_t x_at =
      base + Tile::kDyBytes +
      Tile::template offset<kIn / 8>(first_row + lane / 8 % 2 * 8 + lane % 8, warp_in / 8 + lane / 16);
  const std::uint32_t dy_rows = base + Tile::template offset<kOut / 8>(warp / (kIn / 32) * 16 + lane % 16, lane / 16);
  const int w_row = warp % (kIn / 32) * 32 + lane % 8 / 2 * 8 + lane / 16 * 2 + lane % 2;
  const std::uint32_t w_at = shared_address(weights) + Tile::weight_offset(w_row, lane / 8 % 2);

  GradSums sums = {};
  for (int stage = 0; first < o.grad.rows; first += step, later += step) {
    char* const here = shared + stage * Tile::kStageBytes;
    wait_for_groups<Tile::kStages - 2>();
    x.normalise(first, here + Tile::kDyBytes, ahead, o.grad.clamp);
    if constexpr (kNormed) make_gradient<T, Tile>(dy, first, here, norm_after);
    __syncthreads();
    copy(later, stage == 0 ? Tile::kStages - 1 : stage - 1);
    const std::uint32_t at = stage * Tile::kStageBytes;
    multiply_grad_stage<T, kOut, kIn, Tile>(sums, dy_at + at, x_at + at);
    if (o.da != nullptr) write_input_gradient<T, kOut, kIn, Tile>(o, first, dy_rows + at, w_at);
    stage = stage == Tile::kStages - 1 ? 0 : stage + 1;
  }
  write_grad_parts<Tile>(o.grad, sums, static_cast<int>(blockIdx.x), 0, 0, kIn, shared);
}

}  // namespace bantam::kernels::cuda
