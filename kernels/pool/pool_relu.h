// The gradient of max pooling of what relu wrote, multiplied by relu', with its sums by channel: those are the gradient
// of a bias that was added before.
#pragma once

#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/pool/pool2d.h"

namespace bantam::kernels {

/// Scratch bytes of `max_pool2d_relu_grad`; shape, dtype and target only.
std::size_t max_pool2d_relu_grad_workspace_bytes(const Pool2dShape& shape, DType dtype, DeviceKind target);

/// Of x = relu(z) and its maxima y (batch, out_h, out_w, channels) with their `winner`s (max_pool2d_forward): dz =
/// relu'(z)·dx of max_pool2d_grad_input, without x or z, since relu' is 1 where the winner of a window has a y above 0,
/// and elsewhere 0 or multiplied by 0. sums[c] = Σ over positions of dz, float32 (channels), of values before they are
/// rounded; dz and sums are overwritten. Nothing aliases. Deterministic: partial sums in a fixed order.
using MaxPool2dReluGrad = void(const Exec&, const Pool2dShape& shape, DType dtype, const void* dy, const void* y,
                               const std::uint16_t* winner, void* dz, float* sums, Workspace);
BANTAM_DECLARE_KERNEL(MaxPool2dReluGrad, max_pool2d_relu_grad);

}  // namespace bantam::kernels
