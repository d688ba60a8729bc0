// Max and average pooling, NHWC; global pooling is a window as large as the image.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/common/window.h"

namespace bantam::kernels {

/// x (batch, in_h, in_w, channels), y (batch, out_h, out_w, channels). A window has window_h × window_w positions,
/// `dilation` apart, of which at least one is real; at most 65,535. `overhang`: rows and columns after the padding into
/// which the last windows reach (ceil mode); no average counts them.
struct Pool2dShape {
  std::int64_t batch = 0, in_h = 0, in_w = 0, channels = 0;
  std::int64_t window_h = 1, window_w = 1, stride_h = 1, stride_w = 1;
  std::int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  std::int64_t dilation_h = 1, dilation_w = 1, overhang_h = 0, overhang_w = 0;

  std::int64_t out_h() const {
    return window_positions(in_h + pad_top + pad_bottom + overhang_h, window_h, stride_h, dilation_h);
  }
  std::int64_t out_w() const {
    return window_positions(in_w + pad_left + pad_right + overhang_w, window_w, stride_w, dilation_w);
  }
  std::int64_t x_elements() const { return batch * in_h * in_w * channels; }
  std::int64_t y_elements() const { return batch * out_h() * out_w() * channels; }
  bool operator==(const Pool2dShape&) const = default;
};

/// Whether windows are 3x3 at stride 2 with a padding of 0 or 1 above and at the left, as in the stem of a ResNet, on
/// images of fewer than 2^31 values: kernels of their own on CUDA.
inline bool is_three(const Pool2dShape& s) {
  return s.window_h == 3 && s.window_w == 3 && s.stride_h == 2 && s.stride_w == 2 && s.pad_top == s.pad_left &&
         s.pad_top <= 1 && s.dilation_h == 1 && s.dilation_w == 1 &&
         s.in_h * s.in_w * s.channels < std::int64_t{1} << 31;
}

/// y = maximum over the window, padding ignored; the first maximum in row order wins; NaN wins over numbers. `winner`
/// (shape of y, uint16) gets the winner's place in its window, row·window_w + column; or may be null.
using MaxPool2dForward = void(const Exec&, const Pool2dShape&, DType dtype, const void* x, void* y,
                              std::uint16_t* winner);
/// dx[p] = Σ dy over the windows that p won; overwritten. Deterministic (gathers, no atomics).
using MaxPool2dGradInput = void(const Exec&, const Pool2dShape&, DType dtype, const void* dy,
                                const std::uint16_t* winner, void* dx);
/// y = mean over the window's real positions, or over those of image and padding (counted as zeros) where
/// `count_padding`. float32 sums.
using AvgPool2dForward = void(const Exec&, const Pool2dShape&, DType dtype, bool count_padding, const void* x, void* y);
/// dx[p] = Σ dy / divisor over the windows that hold p; overwritten. Deterministic.
using AvgPool2dGradInput = void(const Exec&, const Pool2dShape&, DType dtype, bool count_padding, const void* dy,
                                void* dx);
BANTAM_DECLARE_KERNEL(MaxPool2dForward, max_pool2d_forward);
BANTAM_DECLARE_KERNEL(MaxPool2dGradInput, max_pool2d_grad_input);
BANTAM_DECLARE_KERNEL(AvgPool2dForward, avg_pool2d_forward);
BANTAM_DECLARE_KERNEL(AvgPool2dGradInput, avg_pool2d_grad_input);

}  // namespace bantam::kernels
