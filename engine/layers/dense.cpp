// Dense: a matrix product over the last axis, a bias and an activation.
#include "bantam/engine/layers/shared_options.h"
#include "bantam/engine/layers/support.h"

namespace bantam {
namespace {

using namespace layers;

class DenseLayer : public BuiltInLayer {
 public:
  explicit DenseLayer(DenseOptions options) : options_(std::move(options)) {}
  std::string_view kind() const override { return "dense"; }

  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = with_channels(kind(), inputs);
    check_positive(kind(), "units", options_.units);
    return in.with(-1, options_.units);
  }

  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena&, std::span<const Shape> inputs) const override {
    const Fans fans{static_cast<double>(inputs[0][-1]), static_cast<double>(options_.units)};
    Parameter& weight =
        scope.parameter("weight", {options_.units, inputs[0][-1]}, make_initializer(options_.initializer, fans));
    Parameter* bias = declare_bias(scope, options_.bias, options_.units);
    return bind_function([&weight, bias, act = options_.activation](const Context& context, Tensor x) {
      if (act.kind == Activation::none) return ops::dense(context, x, weight.value(), value_of(bias));
      return finish(context, ops::dense(context.inner(), x, weight.value()), bias, act);
    });
  }

  NodeTraits traits() const override {
    return {.skips_unused_output = options_.activation.kind == Activation::none, .separates_inner_ops = true};
  }

  std::int64_t flops(std::span<const Shape> inputs) const override { return 2 * options_.units * inputs[0].elements(); }

 private:
  Described describe() const override { return options_; }
  DenseOptions options_;
};

}  // namespace

LayerPtr dense(DenseOptions options) { return std::make_shared<DenseLayer>(std::move(options)); }

namespace layers {

LayerPtr read_dense(ConfigMap& options) {
  options.describe(
      "A matrix product with a bias over the last axis, as Keras' Dense and PyTorch's Linear: y = activation(x·Wᵀ + "
      "b). Each token of (tokens, features), or pixel of an image, is multiplied alone; flatten first where all of a "
      "sample's values count together.",
      "dense: {units: 10}");
  DenseOptions layer;
  layer.units = options.integer({"units", "Values of the output.", "10"}, kCount);
  layer.bias = options.boolean(kBias, true);
  layer.activation = read_activation(options);
  layer.initializer = read_initializer(options);
  return dense(layer);
}

}  // namespace layers
}  // namespace bantam
