// Dense: a matrix product, a bias and an activation.
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
    const Shape& in = single(kind(), inputs);
    if (in.rank() != 1)
      throw ShapeError(fmt::format(
          "dense: expected an input (features), got {}; put flatten or global_average_pool before it", to_string(in)));
    check_positive(kind(), "units", options_.units);
    return {options_.units};
  }

  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena&, std::span<const Shape> inputs) const override {
    const Fans fans{static_cast<double>(inputs[0][0]), static_cast<double>(options_.units)};
    Parameter& weight =
        scope.parameter("weight", {options_.units, inputs[0][0]}, make_initializer(options_.initializer, fans));
    Parameter* bias = declare_bias(scope, options_.bias, options_.units);
    return bind_function([&weight, bias, act = options_.activation](const Context& context, Tensor x) {
      return finish(context, ops::dense(context, std::move(x), weight.value()), bias, act);
    });
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
  options.describe("A matrix product with a bias: y = activation(x·Wᵀ + b). Its input has one axis: flatten first.",
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
