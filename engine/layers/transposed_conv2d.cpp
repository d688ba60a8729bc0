// The transposed convolution layer.
#include "bantam/engine/ops/transposed_conv2d.h"

#include "bantam/engine/layers/shared_options.h"
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

namespace layers {
namespace {

Extent2d read_output_padding(ConfigMap& options) {
  const auto [h, w] = options.pair({"output_padding",
                                    "Rows added at the bottom and columns at the right of the output, where several "
                                    "sizes convolve to the input's: less than the stride. One number for both, or "
                                    "[height, width].",
                                    "1 | [1, 0]"},
                                   {.min = 0, .max = 1 << 20}, {0, 0});
  return {h, w};
}

}  // namespace

LayerPtr read_transposed_conv2d(ConfigMap& options) {
  options.describe(
      "Transposed convolution, which makes images larger: the gradient of a conv2d of the same keys with regard to its "
      "input. The output has (size - 1) × stride - padding + dilation × (kernel - 1) + output_padding + 1 rows and "
      "columns, as PyTorch's ConvTranspose2d; with padding: same, size × stride, as Keras'.",
      "transposed_conv2d: {filters: 64, kernel: 2, stride: 2}");
  TransposedConv2dOptions conv;
  conv.filters = options.integer(kFilters, kCount);
  conv.kernel = read_extent(options, kKernel);
  conv.stride = read_extent(
      options, {"stride", "How many times as large the output is: one number for both, or [height, width].", "2"},
      {1, 1});
  conv.dilation = read_extent(options, kDilation, {1, 1});
  conv.padding = read_padding(options,
                              "Pixels cut off around the output. valid: none; same: as many as leave size × stride, as "
                              "in Keras; or their number: on all sides, as [height, width], or for each side.");
  conv.output_padding = read_output_padding(options);
  conv.groups = options.integer(kGroups, kCount, 1);
  conv.bias = options.boolean(kBias, true);
  conv.activation = read_activation(options);
  conv.initializer = read_initializer(options);
  return transposed_conv2d(conv);
}

}  // namespace layers
}  // namespace bantam
