// Convolutions and dense layers: weights in ONNX' order, "same" as explicit amounts, biases and activations.
#include <algorithm>
#include <array>

#include "bantam/engine/ops/transposed_conv2d.h"
#include "bantam/models/onnx/layer_writers.h"

namespace bantam::onnx {
namespace {

constexpr std::array<std::size_t, 4> kChannelsSecond = {0, 3, 1, 2};
constexpr std::array<std::size_t, 2> kTransposed = {1, 0};

std::vector<std::int64_t> pads(const Padding& padding) {
  return {padding.top, padding.left, padding.bottom, padding.right};
}
std::vector<std::int64_t> pair(const Extent2d& extent) { return {extent.h, extent.w}; }

/// A weight (a, kh, kw, b) of the layer as (a, b, kh, kw).
std::string image_weight(GraphWriter& writer, std::string_view name, const Shape& shape) {
  const std::vector<float> values = permuted(writer.weight(name, shape), shape.extents(), kChannelsSecond);
  return writer.constant(name, {shape[0], shape[3], shape[1], shape[2]}, values);
}

/// A depthwise weight (kh, kw, channels) as (channels, 1, kh, kw).
std::string depthwise_weight(GraphWriter& writer, std::string_view name, const Shape& shape) {
  constexpr std::array<std::size_t, 3> kChannelsBefore = {2, 0, 1};
  const std::vector<float> values = permuted(writer.weight(name, shape), shape.extents(), kChannelsBefore);
  return writer.constant(name, {shape[2], 1, shape[0], shape[1]}, values);
}

std::string bias_weight(GraphWriter& writer, bool wanted, std::int64_t channels) {
  return wanted ? writer.constant("bias", {channels}, writer.weight("bias", {channels})) : "";
}

LayerValue image(const Shape& shape, std::string name) { return {.shape = shape, .first = std::move(name)}; }

/// The layer's window with explicit amounts, for images of this shape.
template <class Options>
Window2d window_of(const Options& options, const char* kind, const Shape& in) {
  Window2d window{options.kernel, options.stride, options.dilation, options.padding};
  window.padding = window.resolve(kind, in[0], in[1]);
  return window;
}

LayerValue write_conv2d(GraphWriter& writer, const LayerInputs& layer) {
  const auto& options = layer.options<Conv2dOptions>();
  const Shape in = layer.value().shape;
  ConvolutionNode node{
      .x = writer.channels_first(layer.value()),
      .weight =
          image_weight(writer, "weight", {options.filters, options.kernel.h, options.kernel.w, in[2] / options.groups}),
      .bias = bias_weight(writer, options.bias, options.filters),
      .window = window_of(options, "conv2d", in),
      .groups = options.groups};
  if (options.padding_mode != ops::PaddingMode::zeros) {
    node.x = write_padding(writer, node.x, in, node.window.padding, options.padding_mode);
    node.window.padding = Padding::symmetric(0);
  }
  return image(layer.output, write_activation(writer, write_convolution(writer, node), options.activation));
}

LayerValue write_depthwise_conv2d(GraphWriter& writer, const LayerInputs& layer) {
  const auto& options = layer.options<DepthwiseConv2dOptions>();
  const Shape in = layer.value().shape;
  const std::int64_t channels = in[2] * options.multiplier;
  const ConvolutionNode node{
      .x = writer.channels_first(layer.value()),
      .weight = depthwise_weight(writer, "weight", {options.kernel.h, options.kernel.w, channels}),
      .bias = bias_weight(writer, options.bias, channels),
      .window = window_of(options, "depthwise_conv2d", in),
      .groups = in[2]};
  return image(layer.output, write_activation(writer, write_convolution(writer, node), options.activation));
}

LayerValue write_separable_conv2d(GraphWriter& writer, const LayerInputs& layer) {
  const auto& options = layer.options<SeparableConv2dOptions>();
  const Shape in = layer.value().shape;
  const std::int64_t middle = in[2] * options.multiplier;
  const std::string filtered = write_convolution(
      writer, {.x = writer.channels_first(layer.value()),
               .weight = depthwise_weight(writer, "depthwise_weight", {options.kernel.h, options.kernel.w, middle}),
               .window = window_of(options, "separable_conv2d", in),
               .groups = in[2]});
  const std::string mixed =
      write_convolution(writer, {.x = filtered,
                                 .weight = image_weight(writer, "pointwise_weight", {options.filters, 1, 1, middle}),
                                 .bias = bias_weight(writer, options.bias, options.filters)});
  return image(layer.output, write_activation(writer, mixed, options.activation));
}

/// Rows (or columns) after those that the input reaches: ConvTranspose's output_padding, less than the stride, and
/// zeros beyond that.
struct OutputEnd {
  std::int64_t padding, zeros;
};
OutputEnd end_of(std::int64_t rows, std::int64_t reached, std::int64_t stride) {
  const std::int64_t padding = std::min(rows - reached, stride - 1);
  return {padding, rows - reached - padding};
}

/// Rows without output padding: those of the convolution's windows, less what its padding cuts off.
Extent2d reached_output(const kernels::Conv2dShape& conv, const Shape& in) {
  return {(in[0] - 1) * conv.stride_h + (conv.kernel_h - 1) * conv.dilation_h + 1 - conv.pad_top - conv.pad_bottom,
          (in[1] - 1) * conv.stride_w + (conv.kernel_w - 1) * conv.dilation_w + 1 - conv.pad_left - conv.pad_right};
}

std::map<std::string, Attribute> transposed_attributes(const kernels::Conv2dShape& conv, OutputEnd bottom,
                                                       OutputEnd right) {
  using Integers = std::vector<std::int64_t>;
  return {{"kernel_shape", Integers{conv.kernel_h, conv.kernel_w}},
          {"strides", Integers{conv.stride_h, conv.stride_w}},
          {"dilations", Integers{conv.dilation_h, conv.dilation_w}},
          {"pads", Integers{conv.pad_top, conv.pad_left, conv.pad_bottom, conv.pad_right}},
          {"output_padding", Integers{bottom.padding, right.padding}},
          {"group", conv.groups}};
}

LayerValue write_transposed_conv2d(GraphWriter& writer, const LayerInputs& layer) {
  const auto& options = layer.options<TransposedConv2dOptions>();
  const Shape in = layer.value().shape;
  const Window2d window{options.kernel, options.stride, options.dilation, options.padding};
  // The convolution whose input gradient it is has the amounts of `same`, less what output padding undoes.
  const kernels::Conv2dShape conv =
      ops::transposed_conv2d_shape(in.prepend(1), options.filters, {window, options.output_padding}, options.groups);
  const Extent2d reached = reached_output(conv, in);
  const OutputEnd bottom = end_of(layer.output[0], reached.h, options.stride.h);
  const OutputEnd right = end_of(layer.output[1], reached.w, options.stride.w);
  const bool zeros = bottom.zeros > 0 || right.zeros > 0;
  const Shape shape{in[2], options.kernel.h, options.kernel.w, options.filters / options.groups};
  std::vector<std::string> inputs{writer.channels_first(layer.value()), image_weight(writer, "weight", shape)};
  if (options.bias && !zeros) inputs.push_back(bias_weight(writer, true, options.filters));
  std::string y = writer.add("ConvTranspose", inputs, transposed_attributes(conv, bottom, right));
  if (zeros)
    y = write_padding(writer, y, layer.output, {PaddingKind::explicit_, 0, bottom.zeros, 0, right.zeros},
                      ops::PaddingMode::zeros);
  if (zeros && options.bias) {
    const std::vector<float> bias = writer.weight("bias", {options.filters});
    y = writer.add("Add", {y, writer.constant("bias", {options.filters, 1, 1}, bias)});
  }
  return image(layer.output, write_activation(writer, y, options.activation));
}

/// Gemm reads matrices only: of inputs with more axes MatMul is the product over the last one.
LayerValue write_dense_of_tokens(GraphWriter& writer, const LayerInputs& layer, const DenseOptions& options) {
  const std::int64_t inputs = layer.value().shape[-1];
  const std::vector<float> weight =
      permuted(writer.weight("weight", {options.units, inputs}), std::array{options.units, inputs}, kTransposed);
  std::string y = writer.add(
      "MatMul", {writer.channels_last(layer.value()), writer.constant("weight", {inputs, options.units}, weight)});
  if (options.bias) y = writer.add("Add", {y, bias_weight(writer, true, options.units)});
  return {.shape = layer.output, .last = write_activation(writer, y, options.activation)};
}

/// Rows of the weight follow x: where that is a flattened image with channels first, so do they.
LayerValue write_dense(GraphWriter& writer, const LayerInputs& layer) {
  const auto& options = layer.options<DenseOptions>();
  if (layer.output.rank() > 1) return write_dense_of_tokens(writer, layer, options);
  const LayerValue& x = layer.value();
  const bool permute = x.last.empty();
  std::vector<float> weight = writer.weight("weight", {options.units, x.shape[0]});
  if (permute) weight = permuted(weight, x.image.prepend(options.units).extents(), kChannelsSecond);
  std::vector<std::string> inputs{permute ? x.first : x.last,
                                  writer.constant("weight", {options.units, x.shape[0]}, weight)};
  if (options.bias) inputs.push_back(bias_weight(writer, true, options.units));
  const std::string y = writer.add("Gemm", inputs, {{"transB", std::int64_t{1}}});
  return {.shape = layer.output, .last = write_activation(writer, y, options.activation)};
}

}  // namespace

std::string write_convolution(GraphWriter& writer, const ConvolutionNode& node) {
  std::vector<std::string> inputs{node.x, node.weight};
  if (!node.bias.empty()) inputs.push_back(node.bias);
  return writer.add("Conv", inputs,
                    {{"kernel_shape", pair(node.window.kernel)},
                     {"strides", pair(node.window.stride)},
                     {"dilations", pair(node.window.dilation)},
                     {"pads", pads(node.window.padding)},
                     {"group", node.groups}});
}

LayerWriters convolution_writers() {
  return {{"conv2d", write_conv2d},
          {"depthwise_conv2d", write_depthwise_conv2d},
          {"separable_conv2d", write_separable_conv2d},
          {"transposed_conv2d", write_transposed_conv2d},
          {"dense", write_dense}};
}

}  // namespace bantam::onnx
