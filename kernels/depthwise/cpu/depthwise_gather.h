// The engine of depthwise forward and input gradient on the CPU: a gather over taps, eight channels at a time.
// With few channels and stride 1, whole rows run as one flat array against weights repeated with the channels' period.
#pragma once

#include <utility>

#include "bantam/kernels/depthwise/cpu/depthwise_rows.h"

namespace bantam::kernels::cpu {

inline constexpr std::int64_t kFlatChannels = 32;  // below it, rows run flat
inline constexpr std::int64_t kFlatTaps = 64;      // most taps whose repeated weights are kept on the stack

/// A gather over taps: out (batch, out_h, out_w, out_channels) from data (batch, h.in, w.in, data_channels).
template <class T>
struct Gather {
  TapAxis h, w;
  std::int64_t batch, out_h, out_w, out_channels, data_channels, multiplier;
  const T* data;
  const T* weights;  // (kernel_h, kernel_w, channels·multiplier)
  T* out;

  std::int64_t weight_channels() const { return std::max(out_channels, data_channels); }
  bool flat() const {
    return multiplier == 1 && w.stride == 1 && out_channels < kFlatChannels && h.kernel * w.kernel <= kFlatTaps;
  }
};

/// The grid of taps for rows `th` and columns `tw` of image n.
template <class T>
TapGrid<T, T> tap_grid(const Gather<T>& g, std::int64_t n, const Taps& th, const Taps& tw) {
  const std::int64_t row = g.w.in * g.data_channels, wc = g.weight_channels();
  return {th.count,
          tw.count,
          g.data + (n * g.h.in + th.position) * row + tw.position * g.data_channels,
          th.position_step * row,
          tw.position_step * g.data_channels,
          g.weights + (th.first * g.w.kernel + tw.first) * wc,
          th.step * g.w.kernel * wc,
          tw.step * wc};
}

/// Several filters a channel: forward, eight outputs read channel o / multiplier each; transposed, each input sums its
/// filters.
template <class T>
void sum_filters(const TapGrid<T, T>& grid, const Gather<T>& g, T* out) {
  const bool transposed = g.h.transposed;
  for (std::int64_t c0 = 0; c0 < g.out_channels; c0 += kLanes) {
    const std::int64_t lanes = std::min(kLanes, g.out_channels - c0);
    std::int64_t data_at[kLanes], weight_at[kLanes];
    for (std::int64_t i = 0; i < lanes; ++i) {
      weight_at[i] = transposed ? (c0 + i) * g.multiplier : c0 + i;
      data_at[i] = transposed ? weight_at[i] : (c0 + i) / g.multiplier;
    }
    const std::int64_t filters = transposed ? g.multiplier : 1;
    float sum[kLanes] = {};
    for (std::int64_t r = 0; r < grid.rows; ++r) {
      for (std::int64_t c = 0; c < grid.cols; ++c) {
        const T* data = grid.data + r * grid.data_row + c * grid.data_col;
        const T* weights = grid.weights + r * grid.weights_row + c * grid.weights_col;
        for (std::int64_t q = 0; q < filters; ++q) {
          for (std::int64_t i = 0; i < lanes; ++i) {
            sum[i] += static_cast<float>(data[data_at[i] + q]) * static_cast<float>(weights[weight_at[i] + q]);
          }
        }
      }
    }
    store_lanes(out + c0, lanes, load8(sum));
  }
}

/// All channels of output position (oh, ow); `th` are the taps of oh.
template <class T>
void position(const Gather<T>& g, std::int64_t n, std::int64_t oh, std::int64_t ow, const Taps& th) {
  const TapGrid<T, T> grid = tap_grid(g, n, th, g.w.at(ow));
  T* out = g.out + ((n * g.out_h + oh) * g.out_w + ow) * g.out_channels;
  if (g.multiplier > 1) return sum_filters(grid, g, out);
  std::int64_t c = 0;
  for (; c + 4 * kLanes <= g.out_channels; c += 4 * kLanes) sum_taps<4>(grid, c, c, kLanes, out + c);
  for (; c + kLanes <= g.out_channels; c += kLanes) sum_taps<1>(grid, c, c, kLanes, out + c);
  if (c < g.out_channels) sum_taps<1>(grid, c, c, g.out_channels - c, out + c);
}

/// The weights of every tap, repeated so that 32 neighbours can be read from any channel on.
inline constexpr std::int64_t kRepeated = 2 * kFlatChannels;
template <class T>
void repeat_weights(const Gather<T>& g, float* repeated) {
  for (std::int64_t tap = 0; tap < g.h.kernel * g.w.kernel; ++tap) {
    for (std::int64_t i = 0; i < kRepeated; ++i) {
      repeated[tap * kRepeated + i] = static_cast<float>(g.weights[tap * g.out_channels + i % g.out_channels]);
    }
  }
}

/// Columns [begin, end) of a row, which all taps of the width meet, as one flat array.
template <class T>
void flat_columns(const Gather<T>& g, std::int64_t n, std::int64_t oh, const Taps& th, const float* repeated,
                  std::pair<std::int64_t, std::int64_t> columns) {
  const Taps tw = g.w.at(columns.first);
  const TapGrid<T, T> plain = tap_grid(g, n, th, tw);
  const TapGrid<T, float> grid{plain.rows,
                               plain.cols,
                               plain.data,
                               plain.data_row,
                               plain.data_col,
                               repeated + (th.first * g.w.kernel + tw.first) * kRepeated,
                               th.step * g.w.kernel * kRepeated,
                               tw.step * kRepeated};
  T* out = g.out + ((n * g.out_h + oh) * g.out_w + columns.first) * g.out_channels;
  const std::int64_t count = (columns.second - columns.first) * g.out_channels;
  const auto period = static_cast<std::uint64_t>(g.out_channels);
  const auto phase = [&](std::int64_t i) { return static_cast<std::int64_t>(static_cast<std::uint64_t>(i) % period); };
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) sum_taps<4>(grid, i, phase(i), kLanes, out + i);
  for (; i + kLanes <= count; i += kLanes) sum_taps<1>(grid, i, phase(i), kLanes, out + i);
  if (i < count) sum_taps<1>(grid, i, phase(i), count - i, out + i);
}

/// The columns of a row that the functions of depthwise_rows.h write; the others are left to `position`.
template <class T>
ColumnRange fast_columns(const Gather<T>& g, std::int64_t n, std::int64_t oh, const Taps& th) {
  const std::int64_t row = g.w.in * g.data_channels, channels = g.out_channels, pad = g.w.pad;
  const T* data = g.data + (n * g.h.in + th.position) * row;
  const T* weights = g.weights + th.first * 3 * channels;
  T* out = g.out + (n * g.out_h + oh) * g.out_w * channels;
  if (th.count == 0) return {};
  if (g.w.transposed && g.w.stride == 2) {
    const RowTaps<T> taps{data, -row, weights, th.step * 3 * channels, channels, channels};
    ColumnRange columns{std::max<std::int64_t>(1, (pad + 1) / 2), std::min(g.w.in, (g.out_w + pad) / 2)};
    if (columns.begin >= columns.end) return {};
    with_rows(th.count, [&](auto rows) { scatter_row<rows.value>(taps, columns, pad, out); });
    return {2 * columns.begin - pad, 2 * columns.end - pad};
  }
  RowTaps<T> taps{data, row, weights, 3 * channels, channels, channels};
  std::int64_t before = pad;
  if (g.w.transposed) {  // the kernel backwards, with the padding that its transpose has
    before = 2 - pad;
    taps.data -= (th.count - 1) * row;
    taps.weights += (th.count - 1) * 3 * channels + 2 * channels;
    taps.weight_row = -3 * channels;
    taps.weight_col = -channels;
  }
  const ColumnRange columns = whole_columns(g.w.in, g.out_w, g.w.stride, before);
  with_rows(th.count, [&](auto rows) {
    if (g.w.stride == 1) {
      gather_row<rows.value, 1>(taps, columns, before, out);
    } else {
      gather_row<rows.value, 2>(taps, columns, before, out);
    }
  });
  return columns;
}

/// Nothing follows a row.
struct NoFinish {
  void operator()(std::int64_t) const {}
};

/// Computes all of `g.out`, rows in parallel; finish(row) is called for each row of all images once it is there.
template <class T, class Finish = NoFinish>
void run_gather(const Gather<T>& g, int threads, const Finish& finish = {}) {
  const std::int64_t row_work = g.out_w * g.weight_channels() * g.h.kernel * g.w.kernel;
  const std::int64_t grain = std::max<std::int64_t>(1, 65536 / std::max<std::int64_t>(row_work, 1));
  parallel_ranges(g.batch * g.out_h, grain, threads, [&](std::int64_t first, std::int64_t last) {
    float repeated[kFlatTaps * kRepeated];
    if (g.flat()) repeat_weights(g, repeated);
    const bool fast = g.multiplier == 1 && has_fast_rows(g.h, g.w, g.out_channels);
    const auto [begin, end] = g.flat() ? g.w.interior(g.out_w) : std::pair<std::int64_t, std::int64_t>{0, 0};
    for (std::int64_t row = first; row < last; ++row) {
      const std::int64_t n = row / g.out_h, oh = row % g.out_h;
      const Taps th = g.h.at(oh);
      ColumnRange done{begin, end};
      if (fast) {
        done = fast_columns(g, n, oh, th);
      } else if (begin < end) {
        flat_columns(g, n, oh, th, repeated, {begin, end});
      }
      for (std::int64_t ow = 0; ow < done.begin; ++ow) position(g, n, oh, ow, th);
      for (std::int64_t ow = done.end; ow < g.out_w; ++ow) position(g, n, oh, ow, th);
      finish(row);
    }
  });
}

}  // namespace bantam::kernels::cpu
