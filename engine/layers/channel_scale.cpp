// Layers of one trained factor a channel: layer_scale and prelu.
#include "bantam/engine/layers/shared_options.h"
#include "bantam/engine/layers/support.h"

namespace bantam {
namespace {

using namespace layers;

class BoundFactors : public BoundLayer {
 public:
  using Function = Tensor (*)(const Context&, const Tensor&, const Tensor&);
  BoundFactors(Parameter& factors, Function function) : factors_(factors), function_(function) {}
  Tensor forward(const Context& context, std::span<Tensor> inputs) override {
    const Tensor x = std::move(inputs[0]);
    return function_(context, x, factors_.value());
  }

 private:
  Parameter& factors_;
  Function function_;
};

class LayerScaleLayer : public BuiltInLayer {
 public:
  explicit LayerScaleLayer(LayerScaleOptions options) : options_(options) {}
  std::string_view kind() const override { return "layer_scale"; }
  Shape output_shape(std::span<const Shape> inputs) const override { return with_channels(kind(), inputs); }
  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena&, std::span<const Shape> inputs) const override {
    Parameter& scale = scope.parameter("scale", Shape{inputs[0][-1]}, constant(options_.initial), true, false);
    return std::make_unique<BoundFactors>(scale, ops::channel_scale);
  }

 private:
  Described describe() const override { return options_; }
  LayerScaleOptions options_;
};

class PReluLayer : public BuiltInLayer {
 public:
  explicit PReluLayer(PReluOptions options) : options_(options) {}
  std::string_view kind() const override { return "prelu"; }
  Shape output_shape(std::span<const Shape> inputs) const override { return with_channels(kind(), inputs); }
  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena&, std::span<const Shape> inputs) const override {
    const Shape slopes{options_.shared ? 1 : inputs[0][-1]};
    Parameter& slope = scope.parameter("slope", slopes, constant(options_.initial), true, false);
    return std::make_unique<BoundFactors>(slope, ops::prelu);
  }

 private:
  Described describe() const override { return options_; }
  PReluOptions options_;
};

}  // namespace

LayerPtr layer_scale(LayerScaleOptions options) { return std::make_shared<LayerScaleLayer>(options); }
LayerPtr prelu(PReluOptions options) { return std::make_shared<PReluLayer>(options); }

namespace layers {
namespace {

constexpr NumberRange kFactor{.min = -1e3, .max = 1e3};
constexpr NumberRange kScale{.min = -1e9, .max = 1e9};  // of outputs that are prices or counts

}  // namespace

LayerPtr read_prelu(ConfigMap& options) {
  options.describe("x where it is positive, slope · x below, with trained slopes.", "prelu: {initial: 0.25}");
  PReluOptions layer;
  layer.initial = static_cast<float>(options.number({"initial", "Slopes at the start.", "0.1"}, kFactor, 0.25));
  layer.shared =
      options.boolean({"shared", "true: one slope for all channels, PyTorch's default. false: one a channel."}, false);
  return prelu(layer);
}

LayerPtr read_layer_scale(ConfigMap& options) {
  options.describe("A trained factor a channel: y = scale · x. Small at the start, at the end of a residual branch.",
                   "layer_scale: {initial: 1e-6}");
  return layer_scale(
      {.initial = static_cast<float>(options.number({"initial", "Factors at the start.", "0.1"}, kScale, 1e-6))});
}

}  // namespace layers
}  // namespace bantam
