// The weight gradient of a depthwise convolution on the CPU: rows of dy, one after the other, added to one set of sums.
#pragma once

#include "bantam/kernels/common/cpu/column_sums.h"
#include "bantam/kernels/depthwise/cpu/depthwise_gather.h"
#include "bantam/kernels/depthwise/depthwise_conv2d.h"

namespace bantam::kernels::cpu {

/// The axes of the convolution, or of its transpose.
inline TapAxis rows_of(const DepthwiseConv2dShape& s, bool transposed) {
  return {transposed ? s.out_h() : s.in_h, s.kernel_h, s.stride_h, s.pad_top, s.dilation_h, transposed};
}
inline TapAxis columns_of(const DepthwiseConv2dShape& s, bool transposed) {
  return {transposed ? s.out_w() : s.in_w, s.kernel_w, s.stride_w, s.pad_left, s.dilation_w, transposed};
}

/// Below so many channels (and no whole vectors), eight positions run as one flat array.
inline constexpr std::int64_t kFlatRow = 32;

/// A tap's share of a row: `count` positions of x and dy, their first channels, and the steps from one to the next.
template <class T>
struct RowProducts {
  const T* x;
  const T* dy;
  std::int64_t count, x_step, dy_step;
};

/// dw[i] += Σ x·dy over the row, for V groups of eight channels (the last with `lanes` of them).
template <int V, class T>
inline void add_products(const RowProducts<T>& row, std::int64_t c, std::int64_t lanes, float* dw) {
  Float8 sum[V] = {};
  for (std::int64_t i = 0; i < row.count; ++i) {
    const T *x = row.x + i * row.x_step + c, *dy = row.dy + i * row.dy_step + c;
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[v] += load_lanes(x + v * kLanes, lanes) * load_lanes(dy + v * kLanes, lanes);
  }
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
    float* to = dw + c + v * kLanes;
    store_lanes(to, lanes, load_lanes(to, lanes) + sum[v]);
  }
}

template <class T>
void add_channels(const RowProducts<T>& row, std::int64_t channels, float* dw) {
  std::int64_t c = 0;
  for (; c + 4 * kLanes <= channels; c += 4 * kLanes) add_products<4>(row, c, kLanes, dw);
  for (; c + kLanes <= channels; c += kLanes) add_products<1>(row, c, kLanes, dw);
  if (c < channels) add_products<1>(row, c, channels - c, dw);
}

/// Few channels, neighbouring positions: eight positions are `channels` whole vectors, summed side by side and folded
/// at the end.
template <class T>
void add_flat(const RowProducts<T>& row, std::int64_t channels, float* dw) {
  Float8 sum[kFlatRow] = {};
  const std::int64_t whole = row.count / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole * channels; i += kLanes * channels) {
    for (std::int64_t v = 0; v < channels; ++v)
      sum[v] += load8(row.x + i + v * kLanes) * load8(row.dy + i + v * kLanes);
  }
  float folded[kFlatRow * kLanes];
  for (std::int64_t v = 0; v < channels; ++v) store8(folded + v * kLanes, sum[v]);
  for (std::int64_t i = 0; i < kLanes; ++i) {
    for (std::int64_t c = 0; c < channels; ++c) dw[c] += folded[i * channels + c];
  }
  for (std::int64_t i = whole; i < row.count; ++i) {
    for (std::int64_t c = 0; c < channels; ++c) {
      dw[c] += static_cast<float>(row.x[i * channels + c]) * static_cast<float>(row.dy[i * channels + c]);
    }
  }
}

inline constexpr std::int64_t kFewChannels = 4;

/// At most four channels, neighbouring positions: adds the products of eight positions to `lanes` (8·C), value by
/// value; `fold_lanes` adds up the positions at the end.
template <int C, class T>
void add_few(const RowProducts<T>& row, float* lanes) {
  Float8 sum[C];
#pragma GCC unroll 4
  for (int v = 0; v < C; ++v) sum[v] = load8(lanes + v * kLanes);
  constexpr std::int64_t kStep = C * kLanes;
  const std::int64_t count = row.count * C, whole = count / kStep * kStep;
  for (std::int64_t i = 0; i < whole; i += kStep) {
#pragma GCC unroll 4
    for (int v = 0; v < C; ++v) sum[v] += load8(row.x + i + v * kLanes) * load8(row.dy + i + v * kLanes);
  }
#pragma GCC unroll 4
  for (int v = 0; v < C; ++v) {
    const std::int64_t at = whole + v * kLanes;
    if (at >= count) break;
    const std::int64_t left = std::min(kLanes, count - at);
    sum[v] += load_lanes(row.x + at, left) * load_lanes(row.dy + at, left);
  }
#pragma GCC unroll 4
  for (int v = 0; v < C; ++v) store8(lanes + v * kLanes, sum[v]);
}

template <class T>
void add_few(const RowProducts<T>& row, std::int64_t channels, float* lanes) {
  if (channels == 1) return add_few<1>(row, lanes);
  if (channels == 2) return add_few<2>(row, lanes);
  if (channels == 3) return add_few<3>(row, lanes);
  add_few<4>(row, lanes);
}

inline void fold_lanes(const float* lanes, std::int64_t taps, std::int64_t channels, float* dw) {
  for (std::int64_t i = 0; i < taps * kLanes * channels; ++i) {
    dw[i / (kLanes * channels) * channels + i % channels] += lanes[i];
  }
}

/// Several filters a channel.
template <class T>
void add_filters(const RowProducts<T>& row, std::int64_t channels, std::int64_t multiplier, float* dw) {
  for (std::int64_t i = 0; i < row.count; ++i) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const auto x = static_cast<float>(row.x[i * row.x_step + c]);
      for (std::int64_t q = c * multiplier; q < (c + 1) * multiplier; ++q) {
        dw[q] += x * static_cast<float>(row.dy[i * row.dy_step + q]);
      }
    }
  }
}

/// add_row for the shapes that depthwise_rows.h supports.
template <class T>
void add_fast_row(const DepthwiseConv2dShape& s, const T* x, const T* dy, std::int64_t n, std::int64_t oh, float* dw) {
  const TapAxis across = columns_of(s, false);
  const Taps th = rows_of(s, false).at(oh);
  if (th.count == 0) return;
  const std::int64_t row = s.in_w * s.channels, out_w = s.out_w();
  const RowTaps<T> taps{x + (n * s.in_h + th.position) * row, row, nullptr, 0, 0, s.channels};
  const T* dy_row = dy + (n * s.out_h() + oh) * out_w * s.channels;
  const ColumnRange whole = whole_columns(s.in_w, out_w, s.stride_w, s.pad_left);
  with_rows(th.count, [&](auto rows) {
    float* to = dw + th.first * 3 * s.channels;
    if (s.stride_w == 1) {
      add_weight_row<rows.value, 1>(taps, dy_row, whole, s.pad_left, to);
    } else {
      add_weight_row<rows.value, 2>(taps, dy_row, whole, s.pad_left, to);
    }
  });
  for (std::int64_t ow = 0; ow < out_w; ++ow) {
    if (ow == whole.begin) ow = whole.end;
    if (ow >= out_w) break;
    const Taps tw = across.at(ow);
    for (std::int64_t i = 0; i < th.count * tw.count; ++i) {
      const std::int64_t r = i / tw.count, j = i % tw.count;
      add_channels(
          RowProducts<T>{taps.data + r * row + (tw.position + j) * s.channels, dy_row + ow * s.channels, 1, 0, 0},
          s.channels, dw + ((th.first + r) * 3 + tw.first + j) * s.channels);
    }
  }
}

/// Whether products go to lanes first (`add_few`).
inline bool has_few_channels(const DepthwiseConv2dShape& s) {
  return s.channels <= kFewChannels && s.multiplier == 1 && s.stride_w == 1 && s.kernel_h * s.kernel_w <= kFlatTaps;
}

/// Adds the products of row `oh` of image n to dw (kernel_h, kernel_w, out_channels), or to its lanes.
template <class T>
void add_row(const DepthwiseConv2dShape& s, const T* x, const T* dy, std::int64_t n, std::int64_t oh, float* dw) {
  const std::int64_t out_w = s.out_w(), out_channels = s.out_channels();
  const T* dy_row = dy + (n * s.out_h() + oh) * out_w * out_channels;
  for (std::int64_t tap = 0; tap < s.kernel_h * s.kernel_w; ++tap) {
    const std::int64_t ih = oh * s.stride_h - s.pad_top + tap / s.kernel_w * s.dilation_h;
    const std::int64_t start = tap % s.kernel_w * s.dilation_w - s.pad_left;  // column of x that output column 0 reads
    const std::int64_t begin = start >= 0 ? 0 : (-start + s.stride_w - 1) / s.stride_w;
    const std::int64_t end = start >= s.in_w ? 0 : std::min(out_w, (s.in_w - 1 - start) / s.stride_w + 1);
    if (ih < 0 || ih >= s.in_h || begin >= end) continue;
    const RowProducts<T> row{x + ((n * s.in_h + ih) * s.in_w + start + begin * s.stride_w) * s.channels,
                             dy_row + begin * out_channels, end - begin, s.stride_w * s.channels, out_channels};
    float* to = dw + tap * out_channels;
    if (has_few_channels(s)) {
      add_few(row, s.channels, dw + tap * kLanes * s.channels);
    } else if (s.multiplier > 1) {
      add_filters(row, s.channels, s.multiplier, to);
    } else if (s.channels < kFlatRow && s.channels % kLanes != 0 && s.stride_w == 1) {
      add_flat(row, s.channels, to);
    } else {
      add_channels(row, s.channels, to);
    }
  }
}

/// Adds the products of `rows` (of batch·out_h) to dw (kernel_h, kernel_w, out_channels).
template <class T>
void add_weight_gradient(const DepthwiseConv2dShape& s, const T* x, const T* dy, RowBlock rows, float* dw) {
  const std::int64_t out_h = s.out_h(), taps = s.kernel_h * s.kernel_w;
  constexpr std::int64_t kLongRow = 16;  // in shorter ones the ends and the final sums cost more than the products
  const bool fast =
      s.multiplier == 1 && s.out_w() >= kLongRow && has_fast_rows(rows_of(s, false), columns_of(s, false), s.channels);
  const bool few = has_few_channels(s);
  float lanes[kFlatTaps * kLanes * kFewChannels];
  if (few) std::fill_n(lanes, taps * kLanes * s.channels, 0.0f);
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    if (fast) {
      add_fast_row(s, x, dy, r / out_h, r % out_h, dw);
    } else {
      add_row(s, x, dy, r / out_h, r % out_h, few ? lanes : dw);
    }
  }
  if (few) fold_lanes(lanes, taps, s.channels, dw);
}

}  // namespace bantam::kernels::cpu
