// A convolution of float images as the packed kernels compute it: windows at any offset, results at any distance.
// Forward is one, and the gradient to the input is one for each remainder of the stride.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "bantam/kernels/conv/conv2d.h"
#include "bantam/kernels/matmul/matmul_plan.h"

namespace bantam::kernels::cpu {

/// y[n, i, j, f] = Σ x[n, i·stride_h - top + a·dilation_h, …, c] · w[f, a, b, c]; x is zero outside of the image.
struct WindowConv {
  std::int64_t batch = 0, in_h = 0, in_w = 0, in_channels = 0, filters = 0;
  std::int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  std::int64_t top = 0, left = 0;  ///< how far the first window begins before the image; negative: after
  std::int64_t out_h = 0, out_w = 0;
  std::int64_t padded_w = 0;                         ///< pixels of a row of x with what windows read beside it
  bool pads = false;                                 ///< windows read what is not in the image, or begin within it
  std::int64_t y_image = 0, y_row = 0, y_pixel = 0;  ///< floats of y from one to the next

  std::int64_t depth() const { return kernel_h * kernel_w * in_channels; }
  std::int64_t flops() const { return 2 * batch * out_h * out_w * filters * depth(); }
  std::int64_t read_h() const { return dilation_h * (kernel_h - 1) + 1; }  ///< rows that a window spans
};

inline WindowConv forward_window(const Conv2dShape& s) {
  WindowConv v{.batch = s.batch,
               .in_h = s.in_h,
               .in_w = s.in_w,
               .in_channels = s.in_channels,
               .filters = s.out_channels,
               .kernel_h = s.kernel_h,
               .kernel_w = s.kernel_w,
               .stride_h = s.stride_h,
               .stride_w = s.stride_w,
               .dilation_h = s.dilation_h,
               .dilation_w = s.dilation_w,
               .top = s.pad_top,
               .left = s.pad_left,
               .out_h = s.out_h(),
               .out_w = s.out_w(),
               .padded_w = s.in_w + s.pad_left + s.pad_right,
               .pads = s.pad_top > 0 || s.pad_bottom > 0 || s.pad_left > 0 || s.pad_right > 0};
  v.y_pixel = s.out_channels, v.y_row = v.out_w * v.y_pixel, v.y_image = v.out_h * v.y_row;
  return v;
}

/// Lists, on one axis, the positions i of x with (i + pad) mod stride == remainder and taps that read them: positions
/// first, first + stride, …; taps tap, tap + step, …. dx there is a convolution of dy with these taps, reversed.
struct AxisPhase {
  AxisPhase(std::int64_t size, std::int64_t kernel, std::int64_t stride, std::int64_t dilation, std::int64_t pad,
            std::int64_t remainder)
      : first(((remainder - pad) % stride + stride) % stride), step(stride / std::gcd(stride, dilation)) {
    count = size > first ? ceil_div(size - first, stride) : 0;
    spacing = dilation / std::gcd(stride, dilation);
    while (tap < step && tap * dilation % stride != remainder) ++tap;
    if (tap >= step || tap >= kernel) return;
    taps = (kernel - 1 - tap) / step + 1;
    before = spacing * (taps - 1) - (first + pad - tap * dilation) / stride;
  }
  std::int64_t first, count = 0;         ///< positions
  std::int64_t tap = 0, step, taps = 0;  ///< none: dx is zero
  std::int64_t spacing = 1, before = 0;  ///< of the windows on dy: dilation, and where the first begins
};

/// Position (row, column) of the remainders of the strides.
struct InputPhase {
  InputPhase(const Conv2dShape& s, std::int64_t row, std::int64_t column)
      : h(s.in_h, s.kernel_h, s.stride_h, s.dilation_h, s.pad_top, row),
        w(s.in_w, s.kernel_w, s.stride_w, s.dilation_w, s.pad_left, column) {}
  AxisPhase h, w;
  bool is_empty() const { return h.count == 0 || w.count == 0; }
  bool is_zero() const { return h.taps == 0 || w.taps == 0; }
};

/// The convolution of dy that computes dx at a phase's positions; y is dx from the first of them on.
inline WindowConv gradient_window(const Conv2dShape& s, const InputPhase& phase) {
  const AxisPhase &h = phase.h, &w = phase.w;
  WindowConv v{.batch = s.batch,
               .in_h = s.out_h(),
               .in_w = s.out_w(),
               .in_channels = s.out_channels,
               .filters = s.in_channels,
               .kernel_h = h.taps,
               .kernel_w = w.taps,
               .dilation_h = h.spacing,
               .dilation_w = w.spacing,
               .top = h.before,
               .left = w.before,
               .out_h = h.count,
               .out_w = w.count,
               .padded_w = w.count - 1 + w.spacing * (w.taps - 1) + 1};
  v.pads = v.top != 0 || v.left != 0 || v.padded_w > v.in_w || v.out_h - 1 + v.read_h() > v.in_h;
  v.y_pixel = s.stride_w * s.in_channels, v.y_row = s.stride_h * s.in_w * s.in_channels;
  v.y_image = s.in_h * s.in_w * s.in_channels;
  return v;
}

/// Calls `body(phase)` for each phase that has positions.
template <class Body>
void for_each_phase(const Conv2dShape& s, Body&& body) {
  for (std::int64_t row = 0; row < s.stride_h; ++row) {
    for (std::int64_t column = 0; column < s.stride_w; ++column) {
      const InputPhase phase(s, row, column);
      if (!phase.is_empty()) body(phase);
    }
  }
}

}  // namespace bantam::kernels::cpu
