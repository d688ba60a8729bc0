// Index arithmetic of pooling on the CPU: positions of a window, windows of a position, and a window's maximum.
#pragma once

#include "bantam/kernels/common/cpu/float8.h"
#include "bantam/kernels/pool/pool2d.h"

namespace bantam::kernels::cpu {

/// Places [begin, end) along one axis.
struct Span {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
};

/// One axis of a pooling: positions of a window, and windows of a position.
struct Axis {
  std::int64_t in, out, window, stride, pad, pad_after = 0, dilation = 1;

  /// The places of window `o` at positions from `least` to before `end`.
  Span places_within(std::int64_t o, std::int64_t least, std::int64_t end) const {
    const std::int64_t before = least - (o * stride - pad), room = end - least + before;
    return {dilated(std::max<std::int64_t>(before, 0)), std::min(window, dilated(std::max<std::int64_t>(room, 0)))};
  }
  /// ⌈n/dilation⌉.
  std::int64_t dilated(std::int64_t n) const { return dilation == 1 ? n : (n + dilation - 1) / dilation; }
  /// The part of window `o` that is not padding, as places within the window.
  Span places(std::int64_t o) const { return places_within(o, 0, in); }
  /// How many places of window `o` a mean counts.
  std::int64_t counted(std::int64_t o, bool count_padding) const {
    return (count_padding ? places_within(o, -pad, in + pad_after) : places(o)).count();
  }
  /// The windows that reach over position i; with dilation some of them pass over it.
  Span windows(std::int64_t i) const {
    const std::int64_t last = i + pad, first = last - (window - 1) * dilation;
    return {first <= 0 ? 0 : (first + stride - 1) / stride, std::min(out, last / stride + 1)};
  }
  /// Which place of window `o`, which reaches over position i, that is; -1: none.
  std::int64_t place(std::int64_t o, std::int64_t i) const {
    const std::int64_t within = i + pad - o * stride;
    if (dilation == 1) return within;
    return within % dilation == 0 ? within / dilation : -1;
  }
};

struct Pool {
  explicit Pool(const Pool2dShape& s)
      : h{s.in_h, s.out_h(), s.window_h, s.stride_h, s.pad_top, s.pad_bottom, s.dilation_h},
        w{s.in_w, s.out_w(), s.window_w, s.stride_w, s.pad_left, s.pad_right, s.dilation_w},
        batch(s.batch),
        channels(s.channels) {}
  Axis h, w;
  std::int64_t batch, channels;
};

/// Calls row(image, r) for each of `height` rows of every image, in parallel.
template <class Row>
void for_rows(std::int64_t batch, std::int64_t height, std::int64_t row_work, int threads, Row&& row) {
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(row_work, 1));
  parallel_ranges(batch * height, grain, threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) row(r / height, r % height);
  });
}

/// The maximum of up to eight channels over one window, and where it is. value(row, column) is what stands there.
template <class T, class Value>
[[gnu::always_inline]] inline void max_of_window(Span rows, Span cols, std::int64_t window_w, std::int64_t lanes,
                                                 Value&& value, T* y, std::uint16_t* winner) {
  Float8 best{};
  Int8 place{};
  bool first = true;
  for (std::int64_t kh = rows.begin; kh < rows.end; ++kh) {
    for (std::int64_t kw = cols.begin; kw < cols.end; ++kw) {
      const Float8 v = value(kh, kw);
      // The first NaN wins too: it beats numbers and loses to nothing, as comparisons with it are false.
      const Int8 wins = first ? ~Int8{} : (v > best) | ((v != v) & (best == best));
      best = wins ? v : best;
      place = wins ? Int8{} + static_cast<std::int32_t>(kh * window_w + kw) : place;
      first = false;
    }
  }
  store_lanes(y, lanes, best);
  if (!winner) return;
  const UShort8 narrow_place = __builtin_convertvector(place, UShort8);
  if (lanes == kLanes) {
    std::memcpy(winner, &narrow_place, sizeof(narrow_place));
  } else {
    for (std::int64_t i = 0; i < lanes; ++i) winner[i] = narrow_place[i];
  }
}

/// Eight winners' places as integers; lanes past `lanes` are zero.
inline Int8 load_places(const std::uint16_t* winner, std::int64_t lanes) {
  UShort8 raw{};
  if (lanes == kLanes) {
    std::memcpy(&raw, winner, sizeof(raw));
  } else {
    for (std::int64_t i = 0; i < lanes; ++i) raw[i] = winner[i];
  }
  return __builtin_convertvector(raw, Int8);
}

/// Calls window(offset of the window's first position in x, rows, columns, offset in y, oh, ow) for every window, in
/// parallel over rows.
template <class Window>
void for_windows(const Exec& exec, const Pool& p, Window&& window) {
  const std::int64_t row_work = p.w.out * p.channels * p.h.window * p.w.window;
  for_rows(p.batch, p.h.out, row_work, exec.threads, [&](std::int64_t n, std::int64_t oh) {
    const Span rows = p.h.places(oh);
    const std::int64_t ih = oh * p.h.stride - p.h.pad;
    for (std::int64_t ow = 0; ow < p.w.out; ++ow) {
      const std::int64_t iw = ow * p.w.stride - p.w.pad;
      window(((n * p.h.in + ih) * p.w.in + iw) * p.channels, rows, p.w.places(ow),
             ((n * p.h.out + oh) * p.w.out + ow) * p.channels, oh, ow);
    }
  });
}

}  // namespace bantam::kernels::cpu
