// Element-wise activations and their gradients.
#pragma once

#include <cstdint>

#include "bantam/base/activation.h"
#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

using bantam::Activation;
using bantam::ActivationFunction;
using bantam::parse_activation;
using bantam::to_string;

/// Whether backward reads the input x, as the functions that are not monotone need it, or the output y (all others).
constexpr bool activation_grad_reads_input(Activation a) {
  return a == Activation::gelu || a == Activation::silu || a == Activation::mish || a == Activation::hard_swish;
}

/// y = f(x), `count` elements of `dtype` (float32, float16, bfloat16), computed in float32. `slope`: leaky_relu's
/// and elu's (not negative). y may alias x.
using ActivationForward = void(const Exec&, Activation, float slope, std::int64_t count, DType dtype, const void* x,
                               void* y);
/// dx = dy·f'(·), from `saved`: x or y as `activation_grad_reads_input` says; f' at corners as Activation says. dx may
/// alias dy.
using ActivationGrad = void(const Exec&, Activation, float slope, std::int64_t count, DType dtype, const void* saved,
                            const void* dy, void* dx);
BANTAM_DECLARE_KERNEL(ActivationForward, activation_forward);
BANTAM_DECLARE_KERNEL(ActivationGrad, activation_grad);

}  // namespace bantam::kernels
