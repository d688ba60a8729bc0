// 2-D convolution (cross-correlation), NHWC, with stride, any padding, dilation and groups.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/common/window.h"

namespace bantam::kernels {

/// x (batch, in_h, in_w, in_channels), w (out_channels, kernel_h, kernel_w, in_channels/groups), y (batch, out_h,
/// out_w, out_channels).
struct Conv2dShape {
  std::int64_t batch = 0, in_h = 0, in_w = 0, in_channels = 0, out_channels = 0;
  std::int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1;
  std::int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  std::int64_t dilation_h = 1, dilation_w = 1, groups = 1;

  std::int64_t out_h() const { return window_positions(in_h + pad_top + pad_bottom, kernel_h, stride_h, dilation_h); }
  std::int64_t out_w() const { return window_positions(in_w + pad_left + pad_right, kernel_w, stride_w, dilation_w); }
  std::int64_t x_elements() const { return batch * in_h * in_w * in_channels; }
  std::int64_t w_elements() const { return out_channels * kernel_h * kernel_w * (in_channels / groups); }
  std::int64_t y_elements() const { return batch * out_h() * out_w() * out_channels; }
  bool operator==(const Conv2dShape&) const = default;
};

enum class Conv2dPass : std::uint8_t { forward, grad_input, grad_weight };

/// Scratch bytes of one pass; depends on shape, dtype and the target only, so that a plan made elsewhere is true here.
std::size_t conv2d_workspace_bytes(const Conv2dShape& shape, DType dtype, Conv2dPass pass, DeviceKind target);
/// Multiply-adds counted as 2 each; the same for each pass.
std::int64_t conv2d_flops(const Conv2dShape& shape);

/// Throws DTypeError for types that conv2d does not support.
void check_conv2d_type(DType dtype);

/// y[n,i,j,o] = Σ x[n, i·s - p + a·d, j·s - p + b·d, c] · w[o,a,b,c] over a, b, c of o's group. All `dtype` (float32,
/// float16, bfloat16), float32 sums (no TF32). Nothing aliases. Asynchronous on CUDA; deterministic.
using Conv2dForward = void(const Exec&, const Conv2dShape&, DType dtype, const void* x, const void* w, void* y,
                           Workspace);

/// dx = the transpose of forward in x, applied to dy. dx is `dtype`, overwritten.
using Conv2dGradInput = void(const Exec&, const Conv2dShape&, DType dtype, const void* dy, const void* w, void* dx,
                             Workspace);

/// Where the weight gradient goes.
struct Conv2dWeightGradient {
  float* dw = nullptr;      ///< like w, float32
  bool accumulate = false;  ///< dw is added to, not overwritten
  /// One bool on the host, or null. Not null: a kernel that computes dw in the call's `dtype` may write it in that type
  /// to the first half of its memory (narrow_gradients.h), and sets *narrow before it returns; never where dw
  /// accumulates.
  bool* narrow = nullptr;
};

/// dw = Σ over positions of dy · patch of x.
using Conv2dGradWeight = void(const Exec&, const Conv2dShape&, DType dtype, const void* x, const void* dy,
                              const Conv2dWeightGradient&, Workspace);

/// sums[c] = Σ over filters and taps of w·dw of input channel c: without groups. Where dw is the weight gradient that
/// an array d in the place of x has, that is Σ over pixels of dx·d, dx being the input gradient, which need not be
/// computed for it. float32 sums, added to where `accumulate`; w is `dtype`. Deterministic.
using Conv2dInputSums = void(const Exec&, const Conv2dShape&, DType dtype, const void* w, const float* dw, float* sums,
                             bool accumulate);

BANTAM_DECLARE_KERNEL(Conv2dForward, conv2d_forward);
BANTAM_DECLARE_KERNEL(Conv2dGradInput, conv2d_grad_input);
BANTAM_DECLARE_KERNEL(Conv2dGradWeight, conv2d_grad_weight);
BANTAM_DECLARE_KERNEL(Conv2dInputSums, conv2d_input_sums);

}  // namespace bantam::kernels
