// Depthwise 2-D convolution, NHWC: each input channel has its own `multiplier` filters.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/common/window.h"

namespace bantam::kernels {

/// x (batch, in_h, in_w, channels), w (kernel_h, kernel_w, channels·multiplier), y (batch, out_h, out_w,
/// channels·multiplier). Output channel c·multiplier + q reads input channel c.
struct DepthwiseConv2dShape {
  std::int64_t batch = 0, in_h = 0, in_w = 0, channels = 0, multiplier = 1;
  std::int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1;
  std::int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  std::int64_t dilation_h = 1, dilation_w = 1;

  std::int64_t out_channels() const { return channels * multiplier; }
  std::int64_t out_h() const { return window_positions(in_h + pad_top + pad_bottom, kernel_h, stride_h, dilation_h); }
  std::int64_t out_w() const { return window_positions(in_w + pad_left + pad_right, kernel_w, stride_w, dilation_w); }
  std::int64_t x_elements() const { return batch * in_h * in_w * channels; }
  std::int64_t w_elements() const { return kernel_h * kernel_w * out_channels(); }
  std::int64_t y_elements() const { return batch * out_h() * out_w() * out_channels(); }
  bool operator==(const DepthwiseConv2dShape&) const = default;
};

/// Scratch bytes of the weight gradient (forward and grad_input need none); depends on shape, dtype and the target
/// only.
std::size_t depthwise_conv2d_grad_weight_workspace_bytes(const DepthwiseConv2dShape& shape, DType dtype,
                                                         DeviceKind target);

/// y = depthwise convolution of x with w; all `dtype` (float32, float16, bfloat16), float32 sums. Nothing aliases.
/// Deterministic.
using DepthwiseConv2dForward = void(const Exec&, const DepthwiseConv2dShape&, DType dtype, const void* x, const void* w,
                                    void* y);
/// dx = transpose of forward in x, applied to dy; overwritten.
using DepthwiseConv2dGradInput = void(const Exec&, const DepthwiseConv2dShape&, DType dtype, const void* dy,
                                      const void* w, void* dx);
/// dw float32; overwritten, or added to where `accumulate`. Partial sums in a fixed order.
using DepthwiseConv2dGradWeight = void(const Exec&, const DepthwiseConv2dShape&, DType dtype, const void* x,
                                       const void* dy, float* dw, bool accumulate, Workspace);
BANTAM_DECLARE_KERNEL(DepthwiseConv2dForward, depthwise_conv2d_forward);
BANTAM_DECLARE_KERNEL(DepthwiseConv2dGradInput, depthwise_conv2d_grad_input);
BANTAM_DECLARE_KERNEL(DepthwiseConv2dGradWeight, depthwise_conv2d_grad_weight);

}  // namespace bantam::kernels
