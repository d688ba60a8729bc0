// Launches of the 5x5 and 7x7 depthwise kernels on CUDA.
#pragma once

#include "bantam/kernels/depthwise/depthwise_conv2d.h"

namespace bantam::kernels::cuda {

/// Whether the kernels compute `s` with arrays at these addresses: pairs of channels are read at once.
bool fits_wide_kernels(const DepthwiseConv2dShape& s, DType dtype, const void* data, const void* w, const void* out);

/// Forward, or with `backwards` the input gradient at stride 1, over the shape of the turned convolution.
void wide_forward(const Exec&, const DepthwiseConv2dShape&, DType, const void* x, const void* w, void* y,
                  bool backwards);
/// Input gradient at stride 2.
void wide_spread(const Exec&, const DepthwiseConv2dShape&, DType, const void* dy, const void* w, void* dx);
/// Weight gradient of any shape that fits_wide_strips, at any address; `partials` as the contract's workspace.
void wide_grad_weight(const Exec&, const DepthwiseConv2dShape&, DType, const void* x, const void* dy, float* partials,
                      float* dw, bool accumulate);

}  // namespace bantam::kernels::cuda
