// Convolution and its gradients as plain loops: the oracle of tests.
#pragma once

#include <algorithm>

#include "bantam/kernels/conv/conv2d.h"

namespace bantam::kernels::reference {

/// Calls `visit(x_index, w_index, y_index)` for every product in the sum of a convolution.
template <class Visit>
void for_each_product(const Conv2dShape& s, Visit&& visit) {
  const std::int64_t in = s.in_channels / s.groups, out = s.out_channels / s.groups;
  std::int64_t y = 0;
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t i = 0; i < s.out_h(); ++i) {
      for (std::int64_t j = 0; j < s.out_w(); ++j) {
        for (std::int64_t o = 0; o < s.out_channels; ++o, ++y) {
          for (std::int64_t a = 0; a < s.kernel_h; ++a) {
            for (std::int64_t b = 0; b < s.kernel_w; ++b) {
              const std::int64_t row = i * s.stride_h - s.pad_top + a * s.dilation_h;
              const std::int64_t column = j * s.stride_w - s.pad_left + b * s.dilation_w;
              if (row < 0 || row >= s.in_h || column < 0 || column >= s.in_w) continue;
              const std::int64_t x = ((n * s.in_h + row) * s.in_w + column) * s.in_channels + o / out * in;
              const std::int64_t w = ((o * s.kernel_h + a) * s.kernel_w + b) * in;
              for (std::int64_t c = 0; c < in; ++c) visit(x + c, w + c, y);
            }
          }
        }
      }
    }
  }
}

template <class T>
void conv2d_forward(const Conv2dShape& s, const T* x, const T* w, T* y) {
  std::fill_n(y, s.y_elements(), T(0));
  for_each_product(s, [&](std::int64_t i, std::int64_t j, std::int64_t o) { y[o] += x[i] * w[j]; });
}

template <class T>
void conv2d_grad_input(const Conv2dShape& s, const T* dy, const T* w, T* dx) {
  std::fill_n(dx, s.x_elements(), T(0));
  for_each_product(s, [&](std::int64_t i, std::int64_t j, std::int64_t o) { dx[i] += dy[o] * w[j]; });
}

template <class T>
void conv2d_grad_weight(const Conv2dShape& s, const T* x, const T* dy, T* dw, bool accumulate) {
  if (!accumulate) std::fill_n(dw, s.w_elements(), T(0));
  for_each_product(s, [&](std::int64_t i, std::int64_t j, std::int64_t o) { dw[j] += x[i] * dy[o]; });
}

}  // namespace bantam::kernels::reference
