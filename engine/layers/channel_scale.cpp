// Layers of one trained factor a channel: layer_scale and prelu.
#include "bantam/engine/layers/support.h"

namespace bantam {
namespace {

using namespace layers;

/// The input must have channels.
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

}  // namespace bantam
