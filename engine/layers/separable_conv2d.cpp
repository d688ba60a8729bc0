// The separable convolution layer: depthwise, then pointwise.
#include "bantam/engine/layers/shared_options.h"
#include "bantam/engine/layers/support.h"

namespace bantam {
namespace {

using namespace layers;

class SeparableConv2dLayer : public BuiltInLayer {
 public:
  explicit SeparableConv2dLayer(SeparableConv2dOptions options) : options_(std::move(options)) {}
  std::string_view kind() const override { return "separable_conv2d"; }

  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = single_image(kind(), inputs);
    check_positive(kind(), "filters", options_.filters);
    check_positive(kind(), "multiplier", options_.multiplier);
    const Extent2d out = window_output("separable_conv2d", in, window());
    return {out.h, out.w, options_.filters};
  }

  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena&, std::span<const Shape> inputs) const override {
    const std::int64_t channels = inputs[0][2], middle = channels * options_.multiplier;
    Parameter& depthwise = scope.parameter(
        "depthwise_weight", {options_.kernel.h, options_.kernel.w, middle},
        make_initializer(options_.initializer, depthwise_fans(options_.kernel, channels, options_.multiplier)));
    const Fans fans{static_cast<double>(middle), static_cast<double>(options_.filters)};
    Parameter& pointwise = scope.parameter("pointwise_weight", {options_.filters, 1, 1, middle},
                                           make_initializer(options_.initializer, fans));
    Parameter* bias = declare_bias(scope, options_.bias, options_.filters);
    return bind_function(
        [&depthwise, &pointwise, bias, window = window(), act = options_.activation](const Context& context, Tensor x) {
          const Tensor filtered = ops::depthwise_conv2d(context, std::move(x), depthwise.value(), window);
          const Context before = before_finish(context, bias, act);
          return finish(context, ops::conv2d(before, filtered, pointwise.value()), bias, act);
        });
  }

  std::int64_t flops(std::span<const Shape> inputs) const override {
    const Shape out = output_shape(inputs);
    const std::int64_t middle = inputs[0][2] * options_.multiplier;
    return 2 * out[0] * out[1] * middle * (options_.kernel.h * options_.kernel.w + options_.filters);
  }

 private:
  Described describe() const override { return options_; }
  Window2d window() const { return {options_.kernel, options_.stride, options_.dilation, options_.padding}; }
  SeparableConv2dOptions options_;
};

}  // namespace

LayerPtr separable_conv2d(SeparableConv2dOptions options) {
  return std::make_shared<SeparableConv2dLayer>(std::move(options));
}

namespace layers {

LayerPtr read_separable_conv2d(ConfigMap& options) {
  options.describe(
      "Depthwise convolution without bias, then a 1 × 1 convolution with bias and activation, as Keras' "
      "SeparableConv2D.",
      "separable_conv2d: {filters: 64, kernel: 3, activation: relu}");
  SeparableConv2dOptions conv;
  conv.filters = options.integer(kFilters, kCount);
  read_window(options, conv);
  conv.multiplier = options.integer(kMultiplier, kCount, 1);
  conv.bias = options.boolean(kBias, true);
  conv.activation = read_activation(options);
  conv.initializer = read_initializer(options);
  return separable_conv2d(conv);
}

}  // namespace layers
}  // namespace bantam
