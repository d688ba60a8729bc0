// A row of a 3x3 depthwise convolution on the CPU, eight channels at a time: weights and sums stay in registers, and a
// value that neighbouring outputs share is read once.
#pragma once

#include <type_traits>

#include "bantam/kernels/depthwise/cpu/depthwise_taps.h"

namespace bantam::kernels::cpu {

/// Columns [begin, end).
struct ColumnRange {
  std::int64_t begin = 0, end = 0;
};

/// Whether the functions of this file support a convolution (or its transpose) with one filter a channel.
inline bool has_fast_rows(const TapAxis& h, const TapAxis& w, std::int64_t channels) {
  const auto fits = [](const TapAxis& axis) { return axis.kernel == 3 && axis.dilation == 1; };
  return fits(h) && fits(w) && h.stride == w.stride && (w.stride == 1 || w.stride == 2) && channels % kLanes == 0;
}

/// Outputs all of whose columns of taps lie in the input.
inline ColumnRange whole_columns(std::int64_t in, std::int64_t out, std::int64_t stride, std::int64_t pad) {
  const std::int64_t begin = std::clamp<std::int64_t>((pad + stride - 1) / stride, 0, out);
  const std::int64_t last = in + pad - 3;  // the last first column of taps, in padded columns
  return {begin, std::clamp<std::int64_t>(last < 0 ? 0 : last / stride + 1, begin, out)};
}

/// The rows of taps that an output row meets. Steps of the weights are negative where the kernel is read backwards.
template <class T>
struct RowTaps {
  const T* data;            ///< column 0, channel 0 of the first row
  std::int64_t data_row;    ///< elements from one row of taps to the next
  const T* weights;         ///< the tap that meets the first row's first column
  std::int64_t weight_row;  ///< elements from one row of taps to the next
  std::int64_t weight_col;
  std::int64_t channels;
};

/// `kCount` neighbouring outputs, each from R rows of three columns.
template <int R, int kStride, int kCount, class T>
[[gnu::always_inline]] inline void gather_outputs(const RowTaps<T>& taps, const T* data, const Float8 (&weight)[R][3],
                                                  T* out) {
  Float8 sum[kCount] = {};
#pragma GCC unroll 3
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 9
    for (int i = 0; i < (kCount - 1) * kStride + 3; ++i) {
      const Float8 value = load8(data + r * taps.data_row + i * taps.channels);
#pragma GCC unroll 4
      for (int k = 0; k < kCount; ++k) {
        const int column = i - k * kStride;
        if (column >= 0 && column < 3) sum[k] += value * weight[r][column];
      }
    }
  }
#pragma GCC unroll 4
  for (int k = 0; k < kCount; ++k) store8(out + k * taps.channels, sum[k]);
}

/// Outputs `columns` of a row; output column o reads data columns o·stride - pad and the two after it. `out`: column 0.
template <int R, int kStride, class T>
inline void gather_row(const RowTaps<T>& taps, ColumnRange columns, std::int64_t pad, T* out) {
  for (std::int64_t c = 0; c < taps.channels; c += kLanes) {
    Float8 weight[R][3];
#pragma GCC unroll 3
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) {
        weight[r][j] = load8(taps.weights + r * taps.weight_row + j * taps.weight_col + c);
      }
    }
    std::int64_t o = columns.begin;
    const T* data = taps.data + (o * kStride - pad) * taps.channels + c;
    T* to = out + o * taps.channels + c;
    for (; o + 4 <= columns.end; o += 4, data += 4 * kStride * taps.channels, to += 4 * taps.channels) {
      gather_outputs<R, kStride, 4>(taps, data, weight, to);
    }
    for (; o < columns.end; ++o, data += kStride * taps.channels, to += taps.channels) {
      gather_outputs<R, kStride, 1>(taps, data, weight, to);
    }
  }
}

/// The input gradient at stride 2: output column q of dy reaches data columns 2q - pad (taps 0 of q and 2 of q - 1) and
/// 2q + 1 - pad (tap 1). `columns`: of dy, from 1 on. `out`: column 0 of dx.
template <int R, class T>
inline void scatter_row(const RowTaps<T>& taps, ColumnRange columns, std::int64_t pad, T* out) {
  for (std::int64_t c = 0; c < taps.channels; c += kLanes) {
    Float8 weight[R][3], before[R];
#pragma GCC unroll 3
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) {
        weight[r][j] = load8(taps.weights + r * taps.weight_row + j * taps.weight_col + c);
      }
      before[r] = load8(taps.data + r * taps.data_row + (columns.begin - 1) * taps.channels + c);
    }
    for (std::int64_t q = columns.begin; q < columns.end; ++q) {
      Float8 even{}, odd{};
#pragma GCC unroll 3
      for (int r = 0; r < R; ++r) {
        const Float8 value = load8(taps.data + r * taps.data_row + q * taps.channels + c);
        even += value * weight[r][0] + before[r] * weight[r][2];
        odd += value * weight[r][1];
        before[r] = value;
      }
      T* to = out + (2 * q - pad) * taps.channels + c;
      store8(to, even);
      store8(to + taps.channels, odd);
    }
  }
}

/// Adds Σ x·dy over the columns to R rows of three weights, `to`[r·3 + j] (channels each). Taps: data is x, and `dy`
/// the row of dy (column 0).
template <int R, int kStride, class T>
inline void add_weight_row(const RowTaps<T>& taps, const T* dy, ColumnRange columns, std::int64_t pad, float* to) {
  constexpr int kPair = kStride + 3;  // columns of x that two neighbouring outputs read
  for (std::int64_t c = 0; c < taps.channels; c += kLanes) {
    Float8 sum[R][3] = {};
    std::int64_t o = columns.begin;
    const T *x = taps.data + (o * kStride - pad) * taps.channels + c, *g = dy + o * taps.channels + c;
    for (; o + 2 <= columns.end; o += 2, x += 2 * kStride * taps.channels, g += 2 * taps.channels) {
      const Float8 first = load8(g), second = load8(g + taps.channels);
#pragma GCC unroll 3
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 5
        for (int i = 0; i < kPair; ++i) {
          const Float8 value = load8(x + r * taps.data_row + i * taps.channels);
          if (i < 3) sum[r][i] += value * first;
          if (i >= kStride) sum[r][i - kStride] += value * second;
        }
      }
    }
    if (o < columns.end) {
      const Float8 last = load8(g);
#pragma GCC unroll 3
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 3
        for (int i = 0; i < 3; ++i) sum[r][i] += load8(x + r * taps.data_row + i * taps.channels) * last;
      }
    }
#pragma GCC unroll 3
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) {
        float* sums = to + (r * 3 + j) * taps.channels + c;
        store8(sums, load8(sums) + sum[r][j]);
      }
    }
  }
}

/// Calls call(std::integral_constant<int, rows>) for 1 to 3 rows.
template <class Call>
void with_rows(std::int64_t rows, Call&& call) {
  if (rows == 3) return call(std::integral_constant<int, 3>{});
  if (rows == 2) return call(std::integral_constant<int, 2>{});
  if (rows == 1) return call(std::integral_constant<int, 1>{});
}

}  // namespace bantam::kernels::cpu
