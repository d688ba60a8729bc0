// Piecewise linear activations, of one tensor or of a sum of two, whose backward reads one bit an element.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/elementwise/piecewise.h"

namespace bantam::kernels {

/// Bytes of a mask: one bit an element. Bit i mod 8 of byte i / 8 says whether f rises with slope 1 at element i
/// (PiecewiseLinear::rises; its other slope holds elsewhere, and at corners); bits past the last element are 0.
std::size_t activation_mask_bytes(std::int64_t count);

/// y = f(a + b), or f(a) where b is null, `count` elements of `dtype` (float32, float16, bfloat16), computed in float32
/// and rounded once; `mask` gets the bits of f' unless it is null. f is piecewise (`is_piecewise`). y may alias a or b.
using MaskedActivationForward = void(const Exec&, ActivationFunction f, std::int64_t count, DType dtype, const void* a,
                                     const void* b, void* y, std::uint8_t* mask);
/// dx = dy where the mask is set, f's other slope times dy elsewhere. dx may alias dy.
using MaskedActivationGrad = void(const Exec&, ActivationFunction f, std::int64_t count, DType dtype,
                                  const std::uint8_t* mask, const void* dy, void* dx);
BANTAM_DECLARE_KERNEL(MaskedActivationForward, masked_activation_forward);
BANTAM_DECLARE_KERNEL(MaskedActivationGrad, masked_activation_grad);

}  // namespace bantam::kernels
