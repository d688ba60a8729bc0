// Max and average pooling as plain loops: the oracle of the tests.
#pragma once

#include <cstdint>
#include <vector>

#include "bantam/kernels/pool/pool2d.h"

namespace bantam::kernels::reference {

/// Calls `visit(y index, x index, place in the window)` for every real position of every window, in row order.
template <class Visit>
void visit_pool2d(const Pool2dShape& s, Visit&& visit) {
  const std::int64_t out_h = s.out_h(), out_w = s.out_w();
  for (std::int64_t o = 0; o < s.y_elements(); ++o) {
    const std::int64_t c = o % s.channels, ow = o / s.channels % out_w, oh = o / (s.channels * out_w) % out_h;
    const std::int64_t n = o / (s.channels * out_w * out_h);
    for (std::int64_t place = 0; place < s.window_h * s.window_w; ++place) {
      const std::int64_t ih = oh * s.stride_h - s.pad_top + place / s.window_w * s.dilation_h;
      const std::int64_t iw = ow * s.stride_w - s.pad_left + place % s.window_w * s.dilation_w;
      if (ih < 0 || ih >= s.in_h || iw < 0 || iw >= s.in_w) continue;
      visit(static_cast<std::size_t>(o), static_cast<std::size_t>(((n * s.in_h + ih) * s.in_w + iw) * s.channels + c),
            place);
    }
  }
}

/// Maxima and the winners' places.
template <class T>
struct MaxPool {
  std::vector<T> y;
  std::vector<std::uint16_t> winner;
};

template <class T>
MaxPool<T> max_pool2d_forward(const Pool2dShape& s, const std::vector<T>& x) {
  const auto count = static_cast<std::size_t>(s.y_elements());
  MaxPool<T> result{std::vector<T>(count), std::vector<std::uint16_t>(count)};
  std::vector<bool> seen(count, false);
  visit_pool2d(s, [&](std::size_t o, std::size_t i, std::int64_t place) {
    const T best = result.y[o], value = x[i];
    const bool first_nan = value != value && best == best;
    if (seen[o] && !(value > best) && !first_nan) return;
    seen[o] = true;
    result.y[o] = value;
    result.winner[o] = static_cast<std::uint16_t>(place);
  });
  return result;
}

template <class T>
std::vector<T> max_pool2d_grad_input(const Pool2dShape& s, const std::vector<T>& dy,
                                     const std::vector<std::uint16_t>& winner) {
  std::vector<T> dx(static_cast<std::size_t>(s.x_elements()), T(0));
  visit_pool2d(s, [&](std::size_t o, std::size_t i, std::int64_t place) {
    if (winner[o] == place) dx[i] += dy[o];
  });
  return dx;
}

/// Counts what each window's sum is divided by: with `count_padding` the positions in an image that has its padding.
template <class T>
std::vector<T> avg_pool2d_divisors(const Pool2dShape& s, bool count_padding) {
  std::vector<T> divisors(static_cast<std::size_t>(s.y_elements()), T(0));
  Pool2dShape counted = s;
  if (count_padding) {
    counted.in_h += s.pad_top + s.pad_bottom, counted.in_w += s.pad_left + s.pad_right;
    counted.pad_top = counted.pad_bottom = counted.pad_left = counted.pad_right = 0;
  }
  visit_pool2d(counted, [&](std::size_t o, std::size_t, std::int64_t) { divisors[o] += T(1); });
  return divisors;
}

template <class T>
std::vector<T> avg_pool2d_forward(const Pool2dShape& s, bool count_padding, const std::vector<T>& x) {
  std::vector<T> y(static_cast<std::size_t>(s.y_elements()), T(0));
  visit_pool2d(s, [&](std::size_t o, std::size_t i, std::int64_t) { y[o] += x[i]; });
  const std::vector<T> divisors = avg_pool2d_divisors<T>(s, count_padding);
  for (std::size_t o = 0; o < y.size(); ++o) y[o] /= divisors[o];
  return y;
}

template <class T>
std::vector<T> avg_pool2d_grad_input(const Pool2dShape& s, bool count_padding, const std::vector<T>& dy) {
  std::vector<T> dx(static_cast<std::size_t>(s.x_elements()), T(0));
  const std::vector<T> divisors = avg_pool2d_divisors<T>(s, count_padding);
  visit_pool2d(s, [&](std::size_t o, std::size_t i, std::int64_t) { dx[i] += dy[o] / divisors[o]; });
  return dx;
}

}  // namespace bantam::kernels::reference
