// Pooling on the CPU: rows in parallel, eight channels at a time; gradients gather over the windows of a position.
#include "bantam/kernels/contracts/pool/pool2d.h"

#include "bantam/kernels/cpu/device/convert.h"
#include "bantam/kernels/cpu/device/float8.h"

namespace bantam::kernels::cpu {
namespace {

/// Places [begin, end) along one axis.
struct Span {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
};

/// One axis of a pooling: positions of a window, and windows of a position.
struct Axis {
  std::int64_t in, out, window, stride, pad;

  /// The part of window `o` that is not padding, as places within the window.
  Span places(std::int64_t o) const {
    const std::int64_t start = o * stride - pad;
    return {std::max<std::int64_t>(0, -start), std::min(window, in - start)};
  }
  /// The windows that hold position i.
  Span windows(std::int64_t i) const {
    const std::int64_t last = i + pad, first = last - window + 1;
    return {first <= 0 ? 0 : (first + stride - 1) / stride, std::min(out, last / stride + 1)};
  }
};

struct Pool {
  explicit Pool(const Pool2dShape& s)
      : h{s.in_h, s.out_h(), s.window_h, s.stride_h, s.pad_top},
        w{s.in_w, s.out_w(), s.window_w, s.stride_w, s.pad_left},
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

/// The maximum of up to eight channels over one window whose first position is at `x`.
template <class T>
void max_of_window(const T* x, Span rows, Span cols, const Pool& p, std::int64_t lanes, T* y, std::uint16_t* winner) {
  Float8 best{};
  Int8 place{};
  bool first = true;
  for (std::int64_t kh = rows.begin; kh < rows.end; ++kh) {
    for (std::int64_t kw = cols.begin; kw < cols.end; ++kw) {
      const Float8 value = load_lanes(x + (kh * p.w.in + kw) * p.channels, lanes);
      // The first NaN wins too: it beats numbers and loses to nothing, as comparisons with it are false.
      const Int8 wins = first ? ~Int8{} : (value > best) | ((value != value) & (best == best));
      best = wins ? value : best;
      place = wins ? Int8{} + static_cast<std::int32_t>(kh * p.w.window + kw) : place;
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

/// dx of position (ih, iw) of image n: term(window row, window column, offset in y, lanes) over the windows that hold
/// it.
template <class T, class Term>
void gather_windows(const Pool& p, std::int64_t n, std::int64_t ih, Term&& term, T* dx) {
  const Span oh_range = p.h.windows(ih);
  for (std::int64_t iw = 0; iw < p.w.in; ++iw) {
    const Span ow_range = p.w.windows(iw);
    T* to = dx + ((n * p.h.in + ih) * p.w.in + iw) * p.channels;
    for (std::int64_t c = 0; c < p.channels; c += kLanes) {
      const std::int64_t lanes = std::min(kLanes, p.channels - c);
      Float8 sum{};
      for (std::int64_t oh = oh_range.begin; oh < oh_range.end; ++oh) {
        for (std::int64_t ow = ow_range.begin; ow < ow_range.end; ++ow) {
          const std::int64_t at = ((n * p.h.out + oh) * p.w.out + ow) * p.channels + c;
          const std::int64_t place = (ih + p.h.pad - oh * p.h.stride) * p.w.window + iw + p.w.pad - ow * p.w.stride;
          sum += term(oh, ow, at, place, lanes);
        }
      }
      store_lanes(to + c, lanes, sum);
    }
  }
}

/// One over the number of positions that window (oh, ow) is averaged over.
inline float inverse_divisor(const Pool& p, bool count_padding, std::int64_t oh, std::int64_t ow) {
  const std::int64_t count = count_padding ? p.h.window * p.w.window : p.h.places(oh).count() * p.w.places(ow).count();
  return 1.0f / static_cast<float>(count);
}

template <class T>
void average_of_window(const T* x, Span rows, Span cols, const Pool& p, std::int64_t lanes, float inverse, T* y) {
  Float8 sum{};
  for (std::int64_t kh = rows.begin; kh < rows.end; ++kh) {
    for (std::int64_t kw = cols.begin; kw < cols.end; ++kw) {
      sum += load_lanes(x + (kh * p.w.in + kw) * p.channels, lanes);
    }
  }
  store_lanes(y, lanes, sum * inverse);
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

}  // namespace

void max_pool2d_forward(const Exec& exec, const Pool2dShape& shape, DType dtype, const void* x, void* y,
                        std::uint16_t* winner) {
  const Pool p(shape);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_windows(exec, p, [&](std::int64_t from, Span rows, Span cols, std::int64_t to, std::int64_t, std::int64_t) {
      for (std::int64_t c = 0; c < p.channels; c += kLanes) {
        max_of_window(static_cast<const T*>(x) + from + c, rows, cols, p, std::min(kLanes, p.channels - c),
                      static_cast<T*>(y) + to + c, winner ? winner + to + c : nullptr);
      }
    });
  });
}

void max_pool2d_grad_input(const Exec& exec, const Pool2dShape& shape, DType dtype, const void* dy,
                           const std::uint16_t* winner, void* dx) {
  const Pool p(shape);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* g = static_cast<const T*>(dy);
    const auto term = [&](std::int64_t, std::int64_t, std::int64_t at, std::int64_t place, std::int64_t lanes)
        __attribute__((always_inline)) {
      const Int8 won = load_places(winner + at, lanes) == Int8{} + static_cast<std::int32_t>(place);
      return won ? load_lanes(g + at, lanes) : Float8{};
    };
    for_rows(p.batch, p.h.in, p.w.in * p.channels, exec.threads,
             [&](std::int64_t n, std::int64_t ih) { gather_windows(p, n, ih, term, static_cast<T*>(dx)); });
  });
}

void avg_pool2d_forward(const Exec& exec, const Pool2dShape& shape, DType dtype, bool count_padding, const void* x,
                        void* y) {
  const Pool p(shape);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_windows(exec, p,
                [&](std::int64_t from, Span rows, Span cols, std::int64_t to, std::int64_t oh, std::int64_t ow) {
                  const float inverse = inverse_divisor(p, count_padding, oh, ow);
                  for (std::int64_t c = 0; c < p.channels; c += kLanes) {
                    average_of_window(static_cast<const T*>(x) + from + c, rows, cols, p,
                                      std::min(kLanes, p.channels - c), inverse, static_cast<T*>(y) + to + c);
                  }
                });
  });
}

void avg_pool2d_grad_input(const Exec& exec, const Pool2dShape& shape, DType dtype, bool count_padding, const void* dy,
                           void* dx) {
  const Pool p(shape);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* g = static_cast<const T*>(dy);
    const auto term = [&](std::int64_t oh, std::int64_t ow, std::int64_t at, std::int64_t, std::int64_t lanes)
        __attribute__((always_inline)) {
      return load_lanes(g + at, lanes) * inverse_divisor(p, count_padding, oh, ow);
    };
    for_rows(p.batch, p.h.in, p.w.in * p.channels, exec.threads,
             [&](std::int64_t n, std::int64_t ih) { gather_windows(p, n, ih, term, static_cast<T*>(dx)); });
  });
}

}  // namespace bantam::kernels::cpu
