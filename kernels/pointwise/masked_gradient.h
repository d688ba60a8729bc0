// The input gradient of a 1x1 convolution that is the last to contribute to the gradient of a residual sum with relu:
// as it writes, the GEMM adds what the others contributed, multiplies by relu' and sums over rows.
#pragma once

#include <cstdint>

#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/pointwise/pointwise_norm.h"

namespace bantam::kernels {

/// Whether a kernel does so on the target, so that it should: float16 or bfloat16, `out` a multiple of 64 up to 512,
/// `in` a multiple of 128.
bool masked_gradient_supports(const PointwiseShape& shape, DType dtype, DeviceKind target);

/// Scratch bytes; shape, dtype and target only.
std::size_t masked_gradient_workspace_bytes(const PointwiseShape& shape, DType dtype, DeviceKind target);

/// dz (rows, in) = mask ⊙ (dy·w + addend), rounded once, and sums (in) = Σ dz of the rounded values, float32. dy (rows,
/// out), w (out, in), addend (rows, in), of `dtype`, addresses aligned to 16; `mask`: bits of relu'
/// (masked_activation.h). dz may alias addend. Deterministic.
using MaskedGradient = void(const Exec&, const PointwiseShape& shape, DType dtype, const void* dy, const void* w,
                            const void* addend, const std::uint8_t* mask, void* dz, float* sums, Workspace);
BANTAM_DECLARE_KERNEL(MaskedGradient, masked_gradient);

}  // namespace bantam::kernels
