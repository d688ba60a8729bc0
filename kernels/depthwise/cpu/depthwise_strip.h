// 3x3 depthwise convolution for inference: a few neighbouring outputs, all channels, with bias and clamp. Written once
// for any vector width.
#pragma once

#include <cstdint>

#include "bantam/kernels/conv/cpu/packed_tile.h"

namespace bantam::kernels::cpu {

/// The windows of neighbouring outputs, of which rows and columns outside the image are left out.
struct DepthwiseStrip {
  const float* x;        ///< the first row's first column, channel 0
  std::int64_t x_row;    ///< floats from one row to the next
  std::int64_t rows;     ///< of the windows, 1 to 3
  std::int64_t columns;  ///< of the windows, 1 to 3; where there are several outputs, 3
  const float* weights;  ///< the tap that meets the first row's first column; (3, 3, channels)
  const float* bias;     ///< or null
  std::int64_t channels;
  float below, top;  ///< as PackedTile's
  float* y;          ///< the first output, channel 0
};

/// kCount outputs whose windows have all three columns.
template <class Vector, int kStride, int kCount>
[[gnu::always_inline]] inline void filter_strip(const DepthwiseStrip& s) {
  constexpr int kLanes = sizeof(Vector) / sizeof(float), kColumns = (kCount - 1) * kStride + 3;
  for (std::int64_t c = 0; c < s.channels; c += kLanes) {
    Vector sum[kCount];
#pragma GCC unroll 4
    for (int k = 0; k < kCount; ++k) sum[k] = s.bias != nullptr ? load_vector<Vector>(s.bias + c) : Vector{};
    for (std::int64_t r = 0; r < s.rows; ++r) {
      const float *x = s.x + r * s.x_row + c, *w = s.weights + r * 3 * s.channels + c;
      const Vector taps[3] = {load_vector<Vector>(w), load_vector<Vector>(w + s.channels),
                              load_vector<Vector>(w + 2 * s.channels)};
#pragma GCC unroll 9
      for (int i = 0; i < kColumns; ++i) {
        const Vector value = load_vector<Vector>(x + i * s.channels);
#pragma GCC unroll 4
        for (int k = 0; k < kCount; ++k)
          if (i - k * kStride >= 0 && i - k * kStride < 3) sum[k] += value * taps[i - k * kStride];
      }
    }
#pragma GCC unroll 4
    for (int k = 0; k < kCount; ++k) store_vector(s.y + k * s.channels + c, clamped<Vector>(sum[k], s.below, s.top));
  }
}

/// One output with fewer columns.
template <class Vector>
[[gnu::always_inline]] inline void filter_edge(const DepthwiseStrip& s) {
  constexpr int kLanes = sizeof(Vector) / sizeof(float);
  for (std::int64_t c = 0; c < s.channels; c += kLanes) {
    Vector sum = s.bias != nullptr ? load_vector<Vector>(s.bias + c) : Vector{};
    for (std::int64_t r = 0; r < s.rows; ++r)
      for (std::int64_t i = 0; i < s.columns; ++i)
        sum += load_vector<Vector>(s.x + r * s.x_row + i * s.channels + c) *
               load_vector<Vector>(s.weights + (r * 3 + i) * s.channels + c);
    store_vector(s.y + c, clamped<Vector>(sum, s.below, s.top));
  }
}

}  // namespace bantam::kernels::cpu
