// A 1×1 convolution without stride, padding or groups is one GEMM: which one, for each pass.
#pragma once

#include "bantam/kernels/conv/conv2d.h"
#include "bantam/kernels/matmul/matmul.h"
#include "bantam/kernels/pointwise/pointwise_norm.h"

namespace bantam::kernels {

/// Whether a convolution is one GEMM: (batch·h·w, in) · (in, out).
inline bool is_pointwise(const Conv2dShape& s) {
  return s.kernel_h == 1 && s.kernel_w == 1 && s.stride_h == 1 && s.stride_w == 1 && s.groups == 1 && s.pad_top == 0 &&
         s.pad_bottom == 0 && s.pad_left == 0 && s.pad_right == 0;
}

/// Returns the shape of that GEMM for the kernels of pointwise convolutions.
inline PointwiseShape pointwise_shape(const Conv2dShape& s) {
  return {s.batch * s.in_h * s.in_w, s.in_channels, s.out_channels};
}

/// forward: y = x·wᵀ. grad_input: dx = dy·w. grad_weight: dw = dyᵀ·x.
inline MatmulShape pointwise_matmul(const Conv2dShape& s, Conv2dPass pass) {
  const std::int64_t pixels = s.batch * s.in_h * s.in_w;
  switch (pass) {
    case Conv2dPass::forward:
      return {pixels, s.out_channels, s.in_channels, false, true};
    case Conv2dPass::grad_input:
      return {pixels, s.in_channels, s.out_channels, false, false};
    case Conv2dPass::grad_weight:
      break;
  }
  return {s.out_channels, s.in_channels, pixels, true, false};
}

}  // namespace bantam::kernels
