// Pooling on the CPU: rows in parallel, eight channels at a time; gradients gather over the windows of a position.
#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/pool/cpu/pool_windows.h"

namespace bantam::kernels::cpu {
namespace {

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
        const std::int64_t row = p.h.place(oh, ih);
        for (std::int64_t ow = ow_range.begin; ow < ow_range.end; ++ow) {
          const std::int64_t at = ((n * p.h.out + oh) * p.w.out + ow) * p.channels + c, column = p.w.place(ow, iw);
          if (row >= 0 && column >= 0) sum += term(oh, ow, at, row * p.w.window + column, lanes);
        }
      }
      store_lanes(to + c, lanes, sum);
    }
  }
}

/// One over the number of positions that window (oh, ow) is averaged over.
inline float inverse_divisor(const Pool& p, bool count_padding, std::int64_t oh, std::int64_t ow) {
  return 1.0f / static_cast<float>(p.h.counted(oh, count_padding) * p.w.counted(ow, count_padding));
}

template <class T>
void average_of_window(const T* x, Span rows, Span cols, const Pool& p, std::int64_t lanes, float inverse, T* y) {
  Float8 sum{};
  for (std::int64_t kh = rows.begin; kh < rows.end; ++kh) {
    for (std::int64_t kw = cols.begin; kw < cols.end; ++kw) {
      sum += load_lanes(x + (kh * p.h.dilation * p.w.in + kw * p.w.dilation) * p.channels, lanes);
    }
  }
  store_lanes(y, lanes, sum * inverse);
}

}  // namespace

void max_pool2d_forward(const Exec& exec, const Pool2dShape& shape, DType dtype, const void* x, void* y,
                        std::uint16_t* winner) {
  const Pool p(shape);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_windows(exec, p, [&](std::int64_t from, Span rows, Span cols, std::int64_t to, std::int64_t, std::int64_t) {
      for (std::int64_t c = 0; c < p.channels; c += kLanes) {
        const T* first = static_cast<const T*>(x) + from + c;
        const std::int64_t lanes = std::min(kLanes, p.channels - c);
        max_of_window(
            rows, cols, p.w.window, lanes,
            [&](std::int64_t kh, std::int64_t kw) {
              return load_lanes(first + (kh * p.h.dilation * p.w.in + kw * p.w.dilation) * p.channels, lanes);
            },
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
