// Layers that set values to 0 at random in training.
#include "bantam/engine/layers/support.h"

namespace bantam {
namespace {

using namespace layers;

/// One of the three dropout layers. Its op sets the units that it drops together: elements, channels or samples.
struct DropoutKind {
  const char* name;
  Tensor (*op)(const Context&, Tensor, float rate);
  int least_rank;  ///< of the input
};

class DropoutLayer : public BuiltInLayer {
 public:
  DropoutLayer(DropoutKind dropout, DropoutOptions options) : dropout_(dropout), options_(options) {}
  std::string_view kind() const override { return dropout_.name; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    if (!(options_.rate >= 0.0f && options_.rate < 1.0f))
      throw ShapeError(fmt::format("{}: the rate must be in [0, 1), got {}", kind(), options_.rate));
    const Shape& in = single(kind(), inputs);
    if (in.rank() < dropout_.least_rank)
      throw ShapeError(fmt::format("{}: expected an input with channels, got a scalar", kind()));
    return in;
  }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    return bind_function([op = dropout_.op, rate = options_.rate](const Context& context, Tensor x) {
      return op(context, std::move(x), rate);
    });
  }

 private:
  Described describe() const override { return options_; }
  DropoutKind dropout_;
  DropoutOptions options_;
};

}  // namespace

LayerPtr dropout(DropoutOptions options) {
  return std::make_shared<DropoutLayer>(DropoutKind{"dropout", ops::dropout, 0}, options);
}
LayerPtr spatial_dropout(DropoutOptions options) {
  return std::make_shared<DropoutLayer>(DropoutKind{"spatial_dropout", ops::spatial_dropout, 1}, options);
}
LayerPtr drop_path(DropoutOptions options) {
  return std::make_shared<DropoutLayer>(DropoutKind{"drop_path", ops::drop_path, 0}, options);
}

namespace layers {
namespace {

DropoutOptions read_rate(ConfigMap& options, ConfigKey key) {
  return {.rate = static_cast<float>(options.number(key, {.min = 0, .max = 1, .max_open = true}))};
}

}  // namespace

LayerPtr read_dropout(ConfigMap& options) {
  options.describe("Sets values to 0 at random in training and scales the others by 1 / (1 - rate).",
                   "dropout: {rate: 0.5}");
  return dropout(read_rate(options, {"rate", "Share of values that become 0.", "0.5"}));
}

LayerPtr read_spatial_dropout(ConfigMap& options) {
  options.describe(
      "Sets whole channels of a sample to 0 at random in training and scales the others by 1 / (1 - rate), as Keras' "
      "SpatialDropout2D and PyTorch's Dropout2d.",
      "spatial_dropout: {rate: 0.2}");
  return spatial_dropout(read_rate(options, {"rate", "Share of channels that become 0.", "0.2"}));
}

LayerPtr read_drop_path(ConfigMap& options) {
  options.describe(
      "Sets whole samples to 0 at random in training and scales the others by 1 / (1 - rate): at the end of a residual "
      "block's branch, stochastic depth.",
      "drop_path: {rate: 0.1}");
  return drop_path(read_rate(options, {"rate", "Share of samples that become 0.", "0.1"}));
}

}  // namespace layers
}  // namespace bantam
