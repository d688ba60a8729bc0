// Kinds of activations: layers, ops and kernels name them alike.
#pragma once

#include <cstdint>
#include <string_view>

namespace bantam {

/// gelu is the exact one, x·Φ(x) with erf (Hendrycks and Gimpel 2016); silu is x·sigmoid(x). f' at the corners is that
/// of PyTorch and TensorFlow, in every kernel, fused or not: relu'(0) = 0; relu6'(0) = relu6'(6) = 0; leaky_relu'(0) =
/// slope; -0 is 0. none, gelu, silu, sigmoid and tanh have no corner.
enum class Activation : std::uint8_t { none, relu, relu6, leaky_relu, gelu, silu, sigmoid, tanh };

/// "none", "relu", …
std::string_view to_string(Activation activation);
/// The inverse; throws ConfigError naming the text and all activations.
Activation parse_activation(std::string_view text);

/// An activation and its parameter: the argument of kernels that apply an activation to their output.
struct ActivationFunction {
  Activation kind = Activation::none;
  float slope = 0.01f;  ///< leaky_relu's: f for x < 0, f' for x <= 0
};

}  // namespace bantam
