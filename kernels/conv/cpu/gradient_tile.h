// The inner product of weight gradients: a few values of each pixel's patch times a panel of filters of dy, summed over
// pixels. Written once for any vector width.
#pragma once

#include <cstdint>

#include "bantam/kernels/matmul/cpu/gemm_tile.h"

namespace bantam::kernels::cpu {

/// R values of a patch times a panel of V vectors of filters.
struct GradientTile {
  const float* const* rows = nullptr;  ///< where each output row begins to read x
  std::int64_t row_count = 0;
  std::int64_t pixels = 0;    ///< of an output row
  std::int64_t step = 0;      ///< floats of x from one pixel's patch to the next
  std::int64_t offset = 0;    ///< floats from a patch's begin to the values
  const float* dy = nullptr;  ///< (row_count · pixels, V vectors), `dy_step` floats apart
  std::int64_t dy_step = 0;
  float* dw = nullptr;  ///< (R, V vectors)
  bool add = false;     ///< to what dw has
};

template <class Vector, int R, int V>
[[gnu::always_inline]] inline void multiply_gradient(const GradientTile& tile) {
  constexpr int kLanes = sizeof(Vector) / sizeof(float);
  Vector sum[R][V] = {};
  const float* dy = tile.dy;
  for (std::int64_t row = 0; row < tile.row_count; ++row) {
    const float* x = tile.rows[row] + tile.offset;
    for (std::int64_t p = 0; p < tile.pixels; ++p, x += tile.step, dy += tile.dy_step) {
      Vector right[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) right[v] = load_vector<Vector>(dy + v * kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const float left = x[r];
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sum[r][v] += left * right[v];
      }
    }
  }
  const auto at = [&](int r, int v) { return tile.dw + (r * V + v) * kLanes; };
  if (tile.add) for_each_vector<R, V>([&](int r, int v) { sum[r][v] += load_vector<Vector>(at(r, v)); });
  for_each_vector<R, V>([&](int r, int v) { store_vector(at(r, v), sum[r][v]); });
}

}  // namespace bantam::kernels::cpu
