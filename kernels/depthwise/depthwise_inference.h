// Depthwise convolution for inference: with its epilogue in the same pass.
#pragma once

#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/depthwise/depthwise_conv2d.h"
#include "bantam/kernels/elementwise/epilogue.h"

namespace bantam::kernels {

/// y = epilogue of depthwise_conv2d_forward; the same types. Nothing aliases. Deterministic; an image's result does not
/// depend on the batch.
using DepthwiseConv2dInference = void(const Exec&, const DepthwiseConv2dShape& shape, DType dtype, const void* x,
                                      const void* w, const Epilogue&, void* y);
BANTAM_DECLARE_KERNEL(DepthwiseConv2dInference, depthwise_conv2d_inference);

}  // namespace bantam::kernels
