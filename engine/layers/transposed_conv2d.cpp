// The transposed convolution layer.
#include "bantam/engine/ops/transposed_conv2d.h"

#include "bantam/engine/layers/support.h"

namespace bantam {
namespace {

using namespace layers;

class TransposedConv2dLayer : public BuiltInLayer {
 public:
  explicit TransposedConv2dLayer(TransposedConv2dOptions options) : options_(std::move(options)) {}
  std::string_view kind() const override { return "transposed_conv2d"; }

  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = single_image(kind(), inputs);
    check_positive(kind(), "filters", options_.filters);
    check_positive(kind(), "groups", options_.groups);
    if (in[2] % options_.groups != 0 || options_.filters % options_.groups != 0)
      throw ShapeError(fmt::format("transposed_conv2d: {} input channels and {} filters do not divide into {} groups",
                                   in[2], options_.filters, options_.groups));
    const Extent2d out = ops::transposed_output({window(), options_.output_padding}, in[0], in[1]);
    return {out.h, out.w, options_.filters};
  }

  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena&, std::span<const Shape> inputs) const override {
    const std::int64_t channels = inputs[0][2], depth = options_.filters / options_.groups;
    // As Keras and PyTorch count them, by the weight's axes: the convolution's whose input gradient this is.
    const double area = static_cast<double>(options_.kernel.h * options_.kernel.w);
    const Fans fans{area * static_cast<double>(depth),
                    area * static_cast<double>(channels) / static_cast<double>(options_.groups)};
    Parameter& weight = scope.parameter("weight", {channels, options_.kernel.h, options_.kernel.w, depth},
                                        make_initializer(options_.initializer, fans));
    Parameter* bias = declare_bias(scope, options_.bias, options_.filters);
    return bind_function([&weight, bias, options = options_, window = window()](const Context& context, Tensor x) {
      const Context before = before_finish(context, bias, options.activation);
      return finish(context,
                    ops::transposed_conv2d(before, x, weight.value(), window, options.output_padding, options.groups),
                    bias, options.activation);
    });
  }

  NodeTraits traits() const override {
    return {.skips_unused_output = !options_.bias && options_.activation.kind == Activation::none,
            .separates_inner_ops = true};
  }

  std::int64_t flops(std::span<const Shape> inputs) const override {
    return 2 * inputs[0].elements() * options_.kernel.h * options_.kernel.w * (options_.filters / options_.groups);
  }

 private:
  Described describe() const override { return options_; }
  Window2d window() const { return {options_.kernel, options_.stride, options_.dilation, options_.padding}; }
  TransposedConv2dOptions options_;
};

}  // namespace

LayerPtr transposed_conv2d(TransposedConv2dOptions options) {
  return std::make_shared<TransposedConv2dLayer>(std::move(options));
}

}  // namespace bantam
