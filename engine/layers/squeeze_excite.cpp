// Squeeze-and-excitation: each channel times a factor that is computed from the means of all.
#include "bantam/engine/layers/shared_options.h"
#include "bantam/engine/layers/support.h"

namespace bantam {
namespace {

using namespace layers;

class SqueezeExciteLayer : public BuiltInLayer {
 public:
  explicit SqueezeExciteLayer(SqueezeExciteOptions options) : options_(std::move(options)) {}
  std::string_view kind() const override { return "squeeze_excite"; }
  NodeTraits traits() const override { return {.skips_unused_output = true, .separates_inner_ops = true}; }

  Shape output_shape(std::span<const Shape> inputs) const override {
    check_positive(kind(), "units", options_.units);
    return single_image(kind(), inputs);
  }

  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena&, std::span<const Shape> inputs) const override {
    const std::int64_t channels = inputs[0][2], units = options_.units;
    const auto c = static_cast<double>(channels), u = static_cast<double>(units);
    Parameter& reduce =
        scope.parameter("reduce/weight", {units, channels}, make_initializer(options_.initializer, Fans{c, u}));
    Parameter& reduce_bias = scope.parameter("reduce/bias", {units}, zeros(), false, false);
    Parameter& expand =
        scope.parameter("expand/weight", {channels, units}, make_initializer(options_.initializer, Fans{u, c}));
    Parameter& expand_bias = scope.parameter("expand/bias", {channels}, zeros(), false, false);
    return bind_function([&, act = options_.activation, gate = options_.gate](const Context& context, Tensor x) {
      return ops::squeeze_excite(context, x, {reduce.value(), reduce_bias.value(), expand.value(), expand_bias.value()},
                                 {act.kind, act.slope}, gate);
    });
  }

  std::int64_t flops(std::span<const Shape> inputs) const override { return 4 * options_.units * inputs[0][2]; }

 private:
  Described describe() const override { return options_; }
  SqueezeExciteOptions options_;
};

}  // namespace

LayerPtr squeeze_excite(SqueezeExciteOptions options) {
  return std::make_shared<SqueezeExciteLayer>(std::move(options));
}

namespace layers {

LayerPtr read_squeeze_excite(ConfigMap& options) {
  options.describe(
      "Each channel of an image times a factor from 0 to 1, which two small dense layers compute from the means of all "
      "channels (Hu, Shen and Sun, 2018).",
      "squeeze_excite: {units: 24, activation: silu}");
  SqueezeExciteOptions layer;
  layer.units = options.integer({"units", "Units of the layer between; the channels / 16 or / 4 are usual.", "24"},
                                {.min = 1, .max = 1 << 20});
  layer.activation = read_activation(options, {"activation", "Of the units between.", "silu"}, "relu");
  constexpr std::string_view kGates[] = {"sigmoid", "hard_sigmoid"};
  layer.gate = parse_activation(
      options.node({"gate", "Of the factors: sigmoid, or hard_sigmoid as in MobileNetV3.", "hard_sigmoid"}, "sigmoid")
          .as_choice(kGates));
  layer.initializer = read_initializer(options);
  return squeeze_excite(layer);
}

}  // namespace layers
}  // namespace bantam
