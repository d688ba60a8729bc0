// Layer global_response_norm: channels of a sample that are large beside the others are made larger.
#include "bantam/engine/layers/shared_options.h"
#include "bantam/engine/layers/support.h"

namespace bantam {
namespace {

using namespace layers;

class GlobalResponseNormLayer : public BuiltInLayer {
 public:
  explicit GlobalResponseNormLayer(GlobalResponseNormOptions options) : options_(options) {}
  std::string_view kind() const override { return "global_response_norm"; }
  /// Backward reads the input and the statistics, never the output.
  NodeTraits traits() const override { return {.skips_unused_output = true, .separates_inner_ops = true}; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = single(kind(), inputs);
    if (in.rank() < 2)
      throw ShapeError(fmt::format("{}: expected an input with positions and channels, got {}", kind(), to_string(in)));
    return in;
  }
  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena&, std::span<const Shape> inputs) const override {
    const Shape channels{inputs[0][-1]};
    Parameter* scale = &scope.parameter("scale", channels, zeros(), true, false);
    Parameter* shift = &scope.parameter("shift", channels, zeros(), true, false);
    return bind_function([scale, shift, epsilon = options_.epsilon](const Context& context, const Tensor& x) {
      return ops::global_response_norm(context, x, scale->value(), shift->value(), epsilon);
    });
  }

 private:
  Described describe() const override { return options_; }
  GlobalResponseNormOptions options_;
};

}  // namespace

LayerPtr global_response_norm(GlobalResponseNormOptions options) {
  return std::make_shared<GlobalResponseNormLayer>(options);
}

namespace layers {

LayerPtr read_global_response_norm(ConfigMap& options) {
  options.describe(
      "Global response normalisation of ConvNeXt V2: y = scale · (x · N) + shift + x, where N is each channel's L2 "
      "norm "
      "over the positions of a sample, divided by the mean of all channels' norms + epsilon. scale and shift begin "
      "with "
      "0, so the layer begins with y = x. The same in training and in evaluation.",
      "global_response_norm");
  const double epsilon =
      options.number({"epsilon", "Added to the mean of the norms, against division by 0.", "1e-5"}, kNormEpsilon, 1e-6);
  return global_response_norm({.epsilon = static_cast<float>(epsilon)});
}

}  // namespace layers
}  // namespace bantam
