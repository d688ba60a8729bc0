// Kinds of activations: layers, ops and kernels name them alike.
#pragma once

#include <cstdint>
#include <string_view>

#include "bantam/base/api.h"

BANTAM_API_BEGIN
namespace bantam {

/// gelu is the exact one, x·Φ(x) with erf (Hendrycks and Gimpel 2016); silu is x·sigmoid(x); elu is slope·(exp(x) - 1)
/// for x < 0 (Clevert et al. 2016); selu is 1.0507·elu with slope 1.67326 (Klambauer et al. 2017); mish is
/// x·tanh(softplus(x)) (Misra 2019); hard_sigmoid is min(max(x + 3, 0), 6)/6 and hard_swish x·hard_sigmoid(x) (Howard
/// et al. 2019); softplus is log(1 + exp(x)). f' at the corners is that of PyTorch, in every kernel, fused or not:
/// relu'(0) = 0; relu6'(0) = relu6'(6) = 0; leaky_relu'(0) = elu'(0) = slope; selu'(0) = 1.0507·1.67326;
/// hard_sigmoid'(±3) = 0; hard_swish'(-3) = 0 and hard_swish'(3) = 1 (PyTorch's from 2.8 on); -0 is 0. The others have
/// no corner.
enum class Activation : std::uint8_t {
  none,
  relu,
  relu6,
  leaky_relu,
  gelu,
  silu,
  sigmoid,
  tanh,
  elu,
  selu,
  mish,
  hard_swish,
  hard_sigmoid,
  softplus
};
/// The number of activations, from none to softplus.
inline constexpr int kActivationKinds = static_cast<int>(Activation::softplus) + 1;

/// selu's constants, of its fixed point with mean 0 and variance 1.
inline constexpr double kSeluScale = 1.0507009873554804934193349852946;
inline constexpr double kSeluSlope = 1.6732632423543772848170429916717;

/// "none", "relu", …
std::string_view to_string(Activation activation);
/// The inverse; throws ConfigError naming the text and all activations.
Activation parse_activation(std::string_view text);

/// The parameter that PyTorch has where none is written: elu's α is 1, leaky_relu's slope 0.01.
constexpr float default_slope(Activation activation) { return activation == Activation::elu ? 1.0f : 0.01f; }

/// An activation and its parameter: the argument of kernels that apply an activation to their output.
struct ActivationFunction {
  Activation kind = Activation::none;
  float slope = default_slope(kind);  ///< leaky_relu: f/x for x < 0, f' for x <= 0; elu: α
};

}  // namespace bantam
BANTAM_API_END
