// A convolution and the 2x2 max pooling of its output, which is never written: the maxima are found as sums are stored.
#pragma once

#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/conv/conv2d.h"
#include "bantam/kernels/pool/pool2d.h"

namespace bantam::kernels {

/// The pooling: 2x2, stride 2, without padding. A last odd row or column of the convolution's output is in no window.
Pool2dShape pool_of_conv2d(const Conv2dShape& shape);

/// Whether kernels do both at once: on CUDA, in half types, 3x3 convolutions of few channels over large images; the
/// same for every batch. Elsewhere the two kernels run one after the other, through the workspace.
bool conv2d_pool_supports(const Conv2dShape& shape, DType dtype, DeviceKind target);

/// Scratch bytes of forward or grad_weight; depends on shape, dtype and the target only.
std::size_t conv2d_pool_workspace_bytes(const Conv2dShape& shape, DType dtype, Conv2dPass pass, DeviceKind target);

/// y and `winner` of max_pool2d_forward over the output of conv2d_forward, rounded to `dtype`: the same bits where the
/// convolution has them. `winner` may be null. On CUDA throws ShapeError where conv2d_pool_supports is false. Nothing
/// aliases. Asynchronous on CUDA; deterministic.
using Conv2dPoolForward = void(const Exec&, const Conv2dShape&, DType dtype, const void* x, const void* w, void* y,
                               std::uint16_t* winner, Workspace);

/// dw of the convolution from dy (batch, out_h / 2, out_w / 2, out_channels) and `winner`:
/// dw = Σ over windows of dy · patch of x at the winner. On CUDA throws as forward does.
using Conv2dPoolGradWeight = void(const Exec&, const Conv2dShape&, DType dtype, const void* x, const void* dy,
                                  const std::uint16_t* winner, const Conv2dWeightGradient&, Workspace);

BANTAM_DECLARE_KERNEL(Conv2dPoolForward, conv2d_pool_forward);
BANTAM_DECLARE_KERNEL(Conv2dPoolGradWeight, conv2d_pool_grad_weight);

}  // namespace bantam::kernels
