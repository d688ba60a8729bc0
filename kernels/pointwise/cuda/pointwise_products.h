// Pointwise convolutions of our own: they may normalise their input as they read, and compute the moments of their
// output.
#pragma once

#include "bantam/kernels/common/cuda/reduce/part_moments.h"
#include "bantam/kernels/pointwise/pointwise_norm.h"

namespace bantam::kernels::cuda {

/// Whether the device runs one of these kernels: code for 8.0 or later, and its shared memory. The 99 KiB of 8.6 and
/// 8.9 are enough for all but both gradients at once in tiles of 128 x 128, and of 64 x 32 from dy. Where the functions
/// return false, they have done nothing.
bool runs_pointwise_kernel(const Exec& exec, std::int64_t shared_bytes);

/// y (rows, out) = a·wᵀ, w (out, in): a = x.x, or where x has a norm f(x̂·scale + shift), f relu or relu6, rounded as
/// batch_norm_apply writes it. `moments`: of y, pointwise_parts parts; not computed where its pointer is null. x, w, y
/// of `dtype`, addresses aligned to 16; nothing aliases. Deterministic. False where shape, device or its shared memory
/// are not supported.
bool pointwise_forward(const Exec& exec, const PointwiseShape& shape, DType dtype, const NormOperand& x, const void* w,
                       void* y, const PartMoments& moments);

/// dw (out, in) = dyᵀ·a, float32, added to where `accumulate`; x has a norm. `partials`: pointwise_grad_cut's parts
/// times (out, in). Only where runs_pointwise_grad_weight says so.
bool runs_pointwise_grad_weight(const Exec& exec, const PointwiseShape& shape, DType dtype, const NormOperand& x,
                                const void* dy);
void pointwise_grad_weight(const Exec& exec, const PointwiseShape& shape, DType dtype, const NormOperand& x,
                           const void* dy, float* dw, bool accumulate, float* partials);

/// da and dw at once, from dy or from dz of the norm after; `partials` as above. Whether one is not wanted changes no
/// bit of the other. False too where the shape is not supported (pointwise_backward_fused).
bool pointwise_backward(const Exec& exec, const PointwiseShape& shape, DType dtype, const NormOperand& x, const void* w,
                        const NormInputGradient& dy, const PointwiseGradients& gradients, float* partials);

}  // namespace bantam::kernels::cuda
