// Convolutions of images (at most 4 input channels) on tensor cores by kernels of our own.
#pragma once

#include "bantam/kernels/common/cuda/reduce/part_moments.h"
#include "bantam/kernels/conv/image_parts.h"
#include "bantam/kernels/elementwise/epilogue.h"

namespace bantam::kernels::cuda {

/// y = x convolved with w, as conv2d_forward says, and the moments of y's image_parts unless `parts` is null. False,
/// having done nothing, where the device is too old or an address is not aligned to 16 bytes. Shapes must satisfy
/// is_image_convolution (image_parts.h).
bool image_conv2d_forward(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w,
                          void* y, const PartMoments* parts = nullptr);

/// y = f(x convolved with w + bias), as conv2d_inference says, rounded once. False, having done nothing, as for
/// forward, and where the epilogue has a residual.
bool image_conv2d_epilogue(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w,
                           const Epilogue& epilogue, void* y);

/// dw, as conv2d_grad_weight says, not rounded to `dtype`; `partials` has image_grad_weight_bytes. False as for
/// forward.
bool image_conv2d_grad_weight(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* dy,
                              float* dw, bool accumulate, float* partials);

}  // namespace bantam::kernels::cuda
