// Which taps of a kernel meet the data at an output position, for a convolution and for its transpose.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "bantam/kernels/common/cpu/float8.h"

namespace bantam::kernels::cpu {

/// Taps first, first + step, … (`count` of them); tap i reads the data at position + i·position_step.
struct Taps {
  std::int64_t first = 0, count = 0, step = 1, position = 0, position_step = 1;
};

/// One axis. Forward: position = o·stride - pad + k·dilation. Transposed: position·stride = o + pad - k·dilation.
struct TapAxis {
  std::int64_t in = 0;  ///< extent of the data that is read
  std::int64_t kernel = 1, stride = 1, pad = 0, dilation = 1;
  bool transposed = false;

  Taps at(std::int64_t o) const {
    if (!transposed) return inside({0, kernel, 1, o * stride - pad, dilation});
    if (stride == 1) return inside({0, kernel, 1, o + pad, -dilation});
    const std::int64_t shared = std::gcd(stride, dilation), step = stride / shared;
    for (std::int64_t k = 0; k < std::min(step, kernel); ++k) {
      const std::int64_t scaled = o + pad - k * dilation;
      if (scaled % stride != 0) continue;
      return inside({k, (kernel - k + step - 1) / step, step, scaled / stride, -dilation / shared});
    }
    return {};
  }

  /// Outputs [begin, end) of `out` that all taps meet, where the stride is 1.
  std::pair<std::int64_t, std::int64_t> interior(std::int64_t out) const {
    const std::int64_t reach = (kernel - 1) * dilation;
    const std::int64_t lowest = transposed ? pad - reach : -pad;
    const std::int64_t begin = std::clamp<std::int64_t>(-lowest, 0, out);
    return {begin, std::clamp<std::int64_t>(in - lowest - reach, begin, out)};
  }

 private:
  Taps inside(Taps t) const {
    const auto outside = [&](std::int64_t position) { return position < 0 || position >= in; };
    for (; t.count > 0 && outside(t.position); --t.count) {
      t.first += t.step;
      t.position += t.position_step;
    }
    while (t.count > 0 && outside(t.position + (t.count - 1) * t.position_step)) --t.count;
    return t;
  }
};

/// A rectangle of taps: data and weight of its first, and the steps to the next row and column.
template <class T, class W>
struct TapGrid {
  std::int64_t rows = 0, cols = 0;
  const T* data = nullptr;
  std::int64_t data_row = 0, data_col = 0;
  const W* weights = nullptr;
  std::int64_t weights_row = 0, weights_col = 0;
};

/// Σ data·weight over the grid, for V groups of eight neighbouring elements (the last with `lanes` of them).
template <int V, class T, class W>
inline void sum_taps(const TapGrid<T, W>& g, std::int64_t at, std::int64_t weight_at, std::int64_t lanes, T* out) {
  Float8 sum[V] = {};
  for (std::int64_t r = 0; r < g.rows; ++r) {
    for (std::int64_t c = 0; c < g.cols; ++c) {
      const T* data = g.data + r * g.data_row + c * g.data_col + at;
      const W* weights = g.weights + r * g.weights_row + c * g.weights_col + weight_at;
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        sum[v] += load_lanes(data + v * kLanes, lanes) * load_lanes(weights + v * kLanes, lanes);
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) store_lanes(out + v * kLanes, lanes, sum[v]);
}

}  // namespace bantam::kernels::cpu
