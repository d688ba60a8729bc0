// The depthwise convolution layer.
#include "bantam/engine/layers/shared_options.h"
#include "bantam/engine/layers/support.h"

namespace bantam {
namespace {

using namespace layers;

class DepthwiseConv2dLayer : public BuiltInLayer {
 public:
  explicit DepthwiseConv2dLayer(DepthwiseConv2dOptions options) : options_(std::move(options)) {}
  std::string_view kind() const override { return "depthwise_conv2d"; }

  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = single_image(kind(), inputs);
    check_positive(kind(), "multiplier", options_.multiplier);
    const Extent2d out = window_output("depthwise_conv2d", in, window());
    return {out.h, out.w, in[2] * options_.multiplier};
  }

  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena&, std::span<const Shape> inputs) const override {
    const std::int64_t channels = inputs[0][2], out = channels * options_.multiplier;
    Parameter& weight = scope.parameter(
        "weight", {options_.kernel.h, options_.kernel.w, out},
        make_initializer(options_.initializer, depthwise_fans(options_.kernel, channels, options_.multiplier)));
    Parameter* bias = declare_bias(scope, options_.bias, out);
    return bind_function(
        [&weight, bias, window = window(), act = options_.activation](const Context& context, Tensor x) {
          return finish(context, ops::depthwise_conv2d(context, x, weight.value(), window), bias, act);
        });
  }

  std::int64_t flops(std::span<const Shape> inputs) const override {
    return 2 * output_shape(inputs).elements() * options_.kernel.h * options_.kernel.w;
  }

 private:
  Described describe() const override { return options_; }
  Window2d window() const { return {options_.kernel, options_.stride, options_.dilation, options_.padding}; }
  DepthwiseConv2dOptions options_;
};

}  // namespace

LayerPtr depthwise_conv2d(DepthwiseConv2dOptions options) {
  return std::make_shared<DepthwiseConv2dLayer>(std::move(options));
}

namespace layers {

LayerPtr read_depthwise_conv2d(ConfigMap& options) {
  options.describe("Convolution of each channel with filters of its own.",
                   "depthwise_conv2d: {kernel: 3, stride: 2, padding: same, bias: false}");
  DepthwiseConv2dOptions conv;
  read_window(options, conv);
  conv.multiplier = options.integer(kMultiplier, kCount, 1);
  conv.bias = options.boolean(kBias, true);
  conv.activation = read_activation(options);
  conv.initializer = read_initializer(options);
  return depthwise_conv2d(conv);
}

}  // namespace layers
}  // namespace bantam
