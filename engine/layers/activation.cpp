// The activation layer, and the options of any activation.
#include <algorithm>

#include "bantam/engine/layers/shared_options.h"
#include "bantam/engine/layers/support.h"
#include "bantam/kernels/elementwise/piecewise.h"

namespace bantam {
namespace {

using namespace layers;

class ActivationLayer : public BuiltInLayer {
 public:
  explicit ActivationLayer(ActivationOptions options) : options_(options) {}
  std::string_view kind() const override { return "activation"; }
  NodeTraits traits() const override {
    return {.skips_unused_output = kernels::is_piecewise(options_.kind), .separates_inner_ops = true};
  }
  Shape output_shape(std::span<const Shape> inputs) const override { return single(kind(), inputs); }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    return bind_function([options = options_](const Context& context, Tensor x) {
      return ops::activation(context, std::move(x), options.kind, options.slope);
    });
  }

 private:
  Described describe() const override { return options_; }
  ActivationOptions options_;
};

}  // namespace

LayerPtr activation(ActivationOptions options) { return std::make_shared<ActivationLayer>(options); }

namespace layers {
namespace {

std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (int i = 0; i < kActivationKinds; ++i) names.emplace_back(to_string(static_cast<Activation>(i)));
  return names;
}

std::string_view meaning_of(Activation kind) {
  switch (kind) {
    case Activation::none:
      return "The identity.";
    case Activation::relu:
      return "max(x, 0).";
    case Activation::relu6:
      return "min(max(x, 0), 6).";
    case Activation::leaky_relu:
      return "x from 0 on, slope · x below.";
    case Activation::gelu:
      return "x · Φ(x), with the normal distribution's Φ (GELU).";
    case Activation::silu:
      return "x · sigmoid(x), also called swish.";
    case Activation::sigmoid:
      return "1 / (1 + exp(-x)).";
    case Activation::tanh:
      return "The hyperbolic tangent.";
    case Activation::elu:
      return "x from 0 on, alpha · (exp(x) - 1) below (ELU).";
    case Activation::selu:
      return "1.0507 · elu with alpha 1.67326 (SELU). Goes with the initializer lecun_normal.";
    case Activation::mish:
      return "x · tanh(softplus(x)).";
    case Activation::hard_swish:
      return "x · hard_sigmoid(x).";
    case Activation::hard_sigmoid:
      return "min(max(x + 3, 0), 6) / 6.";
    case Activation::softplus:
      return "log(1 + exp(x)).";
  }
  return "";
}

}  // namespace

ActivationOptions read_activation_options(Activation kind, ConfigMap& options) {
  options.describe(meaning_of(kind));
  ActivationOptions activation{.kind = kind};
  if (kind == Activation::leaky_relu)
    activation.slope = static_cast<float>(options.number(
        {"slope", "Slope for inputs below 0. PyTorch's default; Keras has 0.3.", "0.2"}, {.min = 0, .max = 1}, 0.01));
  if (kind == Activation::elu)
    activation.slope = static_cast<float>(
        options.number({"alpha", "What is approached far below 0 is -alpha.", "0.5"}, {.min = 0, .max = 1e3}, 1.0));
  return activation;
}

ActivationOptions read_activation(ConfigMap& options) {
  return read_activation(options, {"activation", "Applied to the layer's output.", "relu | {leaky_relu: {slope: 0.2}}"},
                         "none");
}

ActivationOptions read_activation(ConfigMap& options, const ConfigKey& key, std::string_view otherwise) {
  const ConfigNode node = options.node(key, otherwise);
  const std::vector<std::string> known = activation_names();
  node.describe_entries("activation", known, [](const std::string& name, const ConfigNode& value) {
    ConfigMap inner = value.as_map();
    (void)read_activation_options(parse_activation(name), inner);
    inner.finish();
  });
  const ConfigNode::Named named = node.as_named();
  if (std::find(known.begin(), known.end(), named.name) == known.end())
    named.options.fail_unknown("activation", named.name, known);
  ConfigMap inner = named.options.as_map();
  const ActivationOptions activation = read_activation_options(parse_activation(named.name), inner);
  inner.finish();
  return activation;
}

Reader<LayerPtr> activation_reader(Activation kind) {
  return [kind](ConfigMap& options) { return activation(read_activation_options(kind, options)); };
}

}  // namespace layers
}  // namespace bantam
