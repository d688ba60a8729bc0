// Convolution layers: regular, depthwise, and separable (depthwise then pointwise).
#include "bantam/engine/layers/support.h"
#include "bantam/engine/ops/pad2d.h"

namespace bantam {
namespace {

using namespace layers;

/// x with the window's padding around it, and the window without padding. Where there is none, x itself.
std::pair<Tensor, Window2d> padded_input(const Context& context, Tensor x, Window2d window, ops::PaddingMode mode) {
  const Padding amounts = window.resolve("conv2d", x.shape()[1], x.shape()[2]);
  if (amounts != Padding::symmetric(0)) x = ops::pad2d(context.inner(), x, amounts, mode);
  window.padding = Padding::valid();
  return {std::move(x), window};
}

class Conv2dLayer : public BuiltInLayer {
 public:
  explicit Conv2dLayer(Conv2dOptions options) : options_(std::move(options)) {}
  std::string_view kind() const override { return "conv2d"; }

  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = single_image(kind(), inputs);
    check_positive(kind(), "filters", options_.filters);
    check_positive(kind(), "groups", options_.groups);
    if (in[2] % options_.groups != 0 || options_.filters % options_.groups != 0)
      throw ShapeError(fmt::format("conv2d: {} input channels and {} filters do not divide into {} groups", in[2],
                                   options_.filters, options_.groups));
    if (options_.whiten) check_whitening(in[2]);
    const Extent2d out = window_output("conv2d", in, window());
    if (options_.padding_mode != ops::PaddingMode::zeros)
      (void)ops::pad2d_shape("conv2d", in.prepend(1), window().resolve("conv2d", in[0], in[1]), options_.padding_mode);
    return {out.h, out.w, options_.filters};
  }

  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena&, std::span<const Shape> inputs) const override {
    const std::int64_t depth = inputs[0][2] / options_.groups, area = options_.kernel.h * options_.kernel.w;
    // A filter's inputs, and the outputs that an input feeds, which are its group's. Keras and PyTorch count the
    // outputs of all groups.
    const Fans fans{static_cast<double>(area * depth),
                    static_cast<double>(area) * static_cast<double>(options_.filters / options_.groups)};
    Parameter& weight = scope.parameter("weight", {options_.filters, options_.kernel.h, options_.kernel.w, depth},
                                        make_initializer(options_.initializer, fans));
    Parameter* bias = declare_bias(scope, options_.bias, options_.filters);
    return bind_function([&weight, bias, window = window(), mode = options_.padding_mode, groups = options_.groups,
                          act = options_.activation](const Context& context, Tensor x) {
      const Context before = before_finish(context, bias, act);
      if (mode == ops::PaddingMode::zeros)
        return finish(context, ops::conv2d(before, x, weight.value(), window, groups), bias, act);
      const auto [padded, valid] = padded_input(context, std::move(x), window, mode);
      return finish(context, ops::conv2d(before, padded, weight.value(), valid, groups), bias, act);
    });
  }

  NodeTraits traits() const override {
    return {.skips_unused_output = !options_.bias && options_.activation.kind == Activation::none,
            .separates_inner_ops = true};
  }

  std::int64_t flops(std::span<const Shape> inputs) const override {
    return 2 * output_shape(inputs).elements() * options_.kernel.h * options_.kernel.w *
           (inputs[0][2] / options_.groups);
  }

 private:
  Described describe() const override { return options_; }
  Window2d window() const { return {options_.kernel, options_.stride, options_.dilation, options_.padding}; }
  void check_whitening(std::int64_t channels) const {
    const std::int64_t patch = options_.kernel.h * options_.kernel.w * channels;
    if (options_.groups != 1) throw ShapeError("conv2d: whiten needs one group of channels");
    if (options_.filters < 2 || options_.filters > 2 * patch || options_.filters % 2 != 0)
      throw ShapeError(
          fmt::format("conv2d: whiten needs 2 × {} × {} × {} = {} filters (a patch's elements, and their negatives), "
                      "or an even number below, got {}",
                      options_.kernel.h, options_.kernel.w, channels, 2 * patch, options_.filters));
    if (options_.whiten->images < 1 || !(options_.whiten->epsilon > 0))
      throw ShapeError(fmt::format("conv2d: whiten needs at least one image and an epsilon above 0, got {} and {}",
                                   options_.whiten->images, options_.whiten->epsilon));
  }
  Conv2dOptions options_;
};

/// Fans of a depthwise kernel (kH, kW, C·multiplier), as Keras counts them for (kH, kW, C, multiplier).
Fans depthwise_fans(Extent2d kernel, std::int64_t channels, std::int64_t multiplier) {
  const double area = static_cast<double>(kernel.h * kernel.w);
  return {area * static_cast<double>(channels), area * static_cast<double>(multiplier)};
}

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

LayerPtr conv2d(Conv2dOptions options) { return std::make_shared<Conv2dLayer>(std::move(options)); }
LayerPtr depthwise_conv2d(DepthwiseConv2dOptions options) {
  return std::make_shared<DepthwiseConv2dLayer>(std::move(options));
}
LayerPtr separable_conv2d(SeparableConv2dOptions options) {
  return std::make_shared<SeparableConv2dLayer>(std::move(options));
}

}  // namespace bantam
