// Pointwise convolutions of our own: they may normalise what they read, and take the moments of what they write.
#pragma once

#include "bantam/kernels/cuda/part_moments.h"
#include "bantam/kernels/pointwise_norm.h"

namespace bantam::kernels::cuda {

/// Whether the device has what these kernels need: code for 8.0 or later, and 112 KiB of shared memory a block
/// (8.0, 8.7, 9.0 and later; not 8.6 and 8.9). Where they say false, nothing was done.
bool has_pointwise_kernels(const Exec& exec);

/// y (rows, out) = a·wᵀ, w (out, in): a = x.x, or where x has a norm f(x̂·scale + shift), f relu or relu6, rounded as
/// batch_norm_apply writes it. `moments`: of y, pointwise_parts parts; not made where its pointer is null. x, w, y of
/// `dtype`, addresses aligned to 16; nothing aliases. Deterministic. False where shape, device or its shared memory do
/// not do.
bool pointwise_forward(const Exec& exec, const PointwiseShape& shape, DType dtype, const NormOperand& x, const void* w,
                       void* y, const PartMoments& moments);

/// dw (out, in) = dyᵀ·a, float32, added to where `accumulate`; x has a norm. `partials`: pointwise_grad_cut's parts
/// times (out, in).
bool pointwise_grad_weight(const Exec& exec, const PointwiseShape& shape, DType dtype, const NormOperand& x,
                           const void* dy, float* dw, bool accumulate, float* partials);

/// da and dw at once, from dy or from dz of a norm behind; `partials` as above. False too where one is not wanted, or
/// where the shape does not do (pointwise_backward_fused).
bool pointwise_backward(const Exec& exec, const PointwiseShape& shape, DType dtype, const NormOperand& x, const void* w,
                        const NormInputGradient& dy, const PointwiseGradients& gradients, float* partials);

}  // namespace bantam::kernels::cuda
