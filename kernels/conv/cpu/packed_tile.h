// The inner product of convolutions with packed weights: a few pixels times a panel of filters, with what follows the
// sum. Written once for any vector width.
#pragma once

#include <cstdint>

#include "bantam/kernels/matmul/cpu/gemm_tile.h"

namespace bantam::kernels::cpu {

/// Most pixels of a tile.
inline constexpr int kMostPixels = 12;

/// A range of the sum: `segments` runs of `length` floats of each pixel's patch, `step` floats apart, and the rows of
/// the panel that they meet, one after the other.
struct TileDepth {
  std::int64_t segments = 1, length = 0, step = 0;
};

/// R pixels times a panel of V vectors of filters.
struct PackedTile {
  const float* patches[kMostPixels];  ///< where the range begins, by pixel
  TileDepth depth;
  const float* weights = nullptr;   ///< (depth, V vectors)
  float* y[kMostPixels];            ///< by pixel
  bool add = false;                 ///< to what y has
  bool last = false;                ///< the sum is complete, and the rest follows
  const float* bias = nullptr;      ///< of the panel's filters, or null
  const float* residual = nullptr;  ///< laid out as y is, or null
  bool clamps = false;              ///< a piecewise linear activation follows: below·v for v < 0, at most `top`
  float below = 1.0f, top = 0.0f;
};

template <class Vector, int R, int V>
[[gnu::always_inline]] inline void sum_tile(const PackedTile& tile, Vector (&sum)[R][V]) {
  constexpr int kLanes = sizeof(Vector) / sizeof(float), kAhead = 16;  // rows of weights on their way to the cache
  const float* patches[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) patches[r] = tile.patches[r];
  const float* w = tile.weights;
  for (std::int64_t segment = 0; segment < tile.depth.segments; ++segment) {
    for (std::int64_t p = 0; p < tile.depth.length; ++p, w += V * kLanes) {
      Vector right[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        right[v] = load_vector<Vector>(w + v * kLanes);
        __builtin_prefetch(w + (kAhead * V + v) * kLanes);
      }
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const float left = patches[r][p];
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sum[r][v] += left * right[v];
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) patches[r] += tile.depth.step;
  }
}

/// below·v for v < 0, `top` above it; NaN stays.
template <class Vector>
[[gnu::always_inline]] inline Vector clamped(const Vector& v, float below, float top) {
  const Vector zero = {}, highest = zero + top;
  const Vector low = below != 0.0f ? v * below : zero;
  const Vector high = v > highest ? highest : v;
  return v < zero ? low : high;
}

/// Applies to complete sums what follows them: bias, residual and activation, each over the whole tile.
template <class Vector, int R, int V>
[[gnu::always_inline]] inline void follow_sum(const PackedTile& tile, Vector (&sum)[R][V]) {
  constexpr int kLanes = sizeof(Vector) / sizeof(float);
  if (const float* bias = tile.bias; bias != nullptr)
    for_each_vector<R, V>([&](int r, int v) { sum[r][v] += load_vector<Vector>(bias + v * kLanes); });
  if (const float* residual = tile.residual; residual != nullptr)
    for_each_vector<R, V>(
        [&](int r, int v) { sum[r][v] += load_vector<Vector>(residual + (tile.y[r] - tile.y[0]) + v * kLanes); });
  if (tile.clamps)
    for_each_vector<R, V>([&](int r, int v) { sum[r][v] = clamped<Vector>(sum[r][v], tile.below, tile.top); });
}

template <class Vector, int R, int V>
[[gnu::always_inline]] inline void multiply_packed(const PackedTile& tile) {
  constexpr int kLanes = sizeof(Vector) / sizeof(float);
  Vector sum[R][V] = {};
  sum_tile<Vector, R, V>(tile, sum);
  if (tile.add) for_each_vector<R, V>([&](int r, int v) { sum[r][v] += load_vector<Vector>(tile.y[r] + v * kLanes); });
  if (tile.last) follow_sum<Vector, R, V>(tile, sum);
  for_each_vector<R, V>([&](int r, int v) { store_vector(tile.y[r] + v * kLanes, sum[r][v]); });
}

}  // namespace bantam::kernels::cpu
