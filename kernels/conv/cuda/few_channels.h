// 3x3 convolutions of 8 to 32 input channels on tensor cores by kernels of our own.
#pragma once

#include "bantam/kernels/conv/few_channels_parts.h"

namespace bantam::kernels::cuda {

/// y = x convolved with w, as conv2d_forward says. False, having done nothing, where the device is too old or an
/// address is not aligned to 16 bytes. Shapes must satisfy has_few_channels_kernel (few_channels_parts.h).
bool few_channels_conv2d_forward(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w,
                                 void* y);

/// dw, as conv2d_grad_weight says, not rounded to `dtype`; `partials` has few_channels_grad_weight_bytes. False as for
/// forward.
bool few_channels_conv2d_grad_weight(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x,
                                     const void* dy, float* dw, bool accumulate, float* partials);

/// y and winners of the 2x2 maxima of that convolution, as conv2d_pool_forward says. False as for forward.
bool few_channels_conv2d_pool_forward(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x,
                                      const void* w, void* y, std::uint16_t* winner);

/// dw from the gradient of those maxima, as conv2d_pool_grad_weight says. False as for grad_weight.
bool few_channels_conv2d_pool_grad_weight(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x,
                                          const void* dy, const std::uint16_t* winner, float* dw, bool accumulate,
                                          float* partials);

}  // namespace bantam::kernels::cuda
