// Names of activations.
#include "bantam/base/activation.h"

#include <array>
#include <string>
#include <utility>

#include "bantam/base/error.h"

namespace bantam {
namespace {

constexpr std::array<std::pair<Activation, std::string_view>, kActivationKinds> kActivationNames = {{
    {Activation::none, "none"},
    {Activation::relu, "relu"},
    {Activation::relu6, "relu6"},
    {Activation::leaky_relu, "leaky_relu"},
    {Activation::gelu, "gelu"},
    {Activation::silu, "silu"},
    {Activation::sigmoid, "sigmoid"},
    {Activation::tanh, "tanh"},
    {Activation::elu, "elu"},
    {Activation::selu, "selu"},
    {Activation::mish, "mish"},
    {Activation::hard_swish, "hard_swish"},
    {Activation::hard_sigmoid, "hard_sigmoid"},
    {Activation::softplus, "softplus"},
}};

}  // namespace

std::string_view to_string(Activation activation) {
  for (const auto& [value, name] : kActivationNames)
    if (value == activation) return name;
  return "?";
}

Activation parse_activation(std::string_view text) {
  std::string all;
  for (const auto& [value, name] : kActivationNames) {
    if (name == text) return value;
    if (!all.empty()) all += ", ";
    all += name;
  }
  throw ConfigError("unknown activation '" + std::string(text) + "'; expected one of " + all);
}

}  // namespace bantam
