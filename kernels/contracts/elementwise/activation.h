// Element-wise activations and their gradients.
#pragma once

#include <cstdint>
#include <string_view>

#include "bantam/base/dtype.h"
#include "bantam/kernels/contracts/exec.h"

namespace bantam::kernels {

/// gelu is the exact one, x·Φ(x) with erf (Hendrycks and Gimpel 2016); silu is x·sigmoid(x). f' at the corners is that
/// of PyTorch and TensorFlow, in every kernel, fused or not: relu'(0) = 0; relu6'(0) = relu6'(6) = 0; leaky_relu'(0) =
/// slope; -0 is 0. none, gelu, silu, sigmoid and tanh have no corner.
enum class Activation : std::uint8_t { none, relu, relu6, leaky_relu, gelu, silu, sigmoid, tanh };

/// "none", "relu", …
std::string_view to_string(Activation activation);
/// The inverse; throws ConfigError naming the text and all activations.
Activation parse_activation(std::string_view text);

/// An activation with its parameter, as kernels take it that apply one to what they compute.
struct ActivationFunction {
  Activation kind = Activation::none;
  float slope = 0.01f;  ///< leaky_relu's: f for x < 0, f' for x <= 0
};

/// Whether backward reads the input x (gelu, silu) or the output y (all others).
constexpr bool activation_grad_reads_input(Activation a) { return a == Activation::gelu || a == Activation::silu; }

/// y = f(x), `count` elements of `dtype` (float32, float16, bfloat16), computed in float32. `slope`: leaky_relu's for x
/// < 0. y may alias x.
using ActivationForward = void(const Exec&, Activation, float slope, std::int64_t count, DType dtype, const void* x,
                               void* y);
/// dx = dy·f'(·), from `saved`: x or y as `activation_grad_reads_input` says; f' at corners as Activation says. dx may
/// alias dy.
using ActivationGrad = void(const Exec&, Activation, float slope, std::int64_t count, DType dtype, const void* saved,
                            const void* dy, void* dx);
namespace cpu {
ActivationForward activation_forward;
ActivationGrad activation_grad;
}  // namespace cpu
namespace cuda {
ActivationForward activation_forward;
ActivationGrad activation_grad;
}  // namespace cuda
namespace meta {
ActivationForward activation_forward;
ActivationGrad activation_grad;
}  // namespace meta

}  // namespace bantam::kernels
