// Depthwise convolution as plain loops: the oracle of the tests. Work with T = double to judge the fast kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "bantam/kernels/depthwise/depthwise_conv2d.h"

namespace bantam::kernels::reference {

/// Calls `visit(x index, w index, y index)` for every product that a depthwise convolution sums.
template <class Visit>
void visit_depthwise_conv2d(const DepthwiseConv2dShape& s, Visit&& visit) {
  const std::int64_t out_h = s.out_h(), out_w = s.out_w(), out_channels = s.out_channels();
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t oh = 0; oh < out_h; ++oh) {
      for (std::int64_t ow = 0; ow < out_w; ++ow) {
        for (std::int64_t kh = 0; kh < s.kernel_h; ++kh) {
          for (std::int64_t kw = 0; kw < s.kernel_w; ++kw) {
            const std::int64_t ih = oh * s.stride_h - s.pad_top + kh * s.dilation_h;
            const std::int64_t iw = ow * s.stride_w - s.pad_left + kw * s.dilation_w;
            if (ih < 0 || ih >= s.in_h || iw < 0 || iw >= s.in_w) continue;
            for (std::int64_t oc = 0; oc < out_channels; ++oc) {
              visit(((n * s.in_h + ih) * s.in_w + iw) * s.channels + oc / s.multiplier,
                    (kh * s.kernel_w + kw) * out_channels + oc, ((n * out_h + oh) * out_w + ow) * out_channels + oc);
            }
          }
        }
      }
    }
  }
}

/// y[o] = Σ x[i]·w[k].
template <class T>
std::vector<T> depthwise_conv2d_forward(const DepthwiseConv2dShape& s, const std::vector<T>& x,
                                        const std::vector<T>& w) {
  std::vector<T> y(static_cast<std::size_t>(s.y_elements()), T(0));
  visit_depthwise_conv2d(s, [&](std::size_t i, std::size_t k, std::size_t o) { y[o] += x[i] * w[k]; });
  return y;
}

/// dx[i] = Σ dy[o]·w[k].
template <class T>
std::vector<T> depthwise_conv2d_grad_input(const DepthwiseConv2dShape& s, const std::vector<T>& dy,
                                           const std::vector<T>& w) {
  std::vector<T> dx(static_cast<std::size_t>(s.x_elements()), T(0));
  visit_depthwise_conv2d(s, [&](std::size_t i, std::size_t k, std::size_t o) { dx[i] += dy[o] * w[k]; });
  return dx;
}

/// dw[k] = Σ x[i]·dy[o].
template <class T>
std::vector<T> depthwise_conv2d_grad_weight(const DepthwiseConv2dShape& s, const std::vector<T>& x,
                                            const std::vector<T>& dy) {
  std::vector<T> dw(static_cast<std::size_t>(s.w_elements()), T(0));
  visit_depthwise_conv2d(s, [&](std::size_t i, std::size_t k, std::size_t o) { dw[k] += x[i] * dy[o]; });
  return dw;
}

}  // namespace bantam::kernels::reference
