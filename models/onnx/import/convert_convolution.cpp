// Convolutions and matrix products, with their weights in our order of axes.
#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/models/onnx/import/importer.h"
#include "bantam/models/onnx/import/window.h"

namespace bantam::onnx {
namespace {

/// Values of a weight of four axes in another order: axis i of the result is axis `order[i]` of the weight.
std::vector<float> permuted(const Tensor& weight, const std::array<std::size_t, 4>& order) {
  return onnx::permuted(weight.as_floats(), weight.dims, order);
}

/// The module's name that a weight's name begins with: "layer1.0.conv1" of "layer1.0.conv1.weight".
std::string module_name(const Node& node) {
  const std::string& weight = node.inputs[1];
  for (const std::string_view end : {".weight", "/weight"})
    if (weight.ends_with(end)) return name_of_path(weight.substr(0, weight.size() - end.size()), node.op);
  return "";
}

bool is_zero(const Tensor& tensor) {
  return std::ranges::all_of(tensor.as_floats(), [](float value) { return value == 0; });
}

void set_bias(Importer& importer, const Node& node, ImportedLayer& layer) {
  const Tensor* bias = importer.constant(node, 2);
  if (bias == nullptr) return layer.set("bias", "false");
  if (bias->dims.size() != 1) fail(node, fmt::format("a bias of {} axes; expected one", bias->dims.size()));
  // A computed bias of zeros is none: PyTorch writes it for a convolution without bias where its optimizer is off.
  if (importer.is_computed(node, 2) && is_zero(*bias)) return layer.set("bias", "false");
  layer.tensors.emplace("bias", host_tensor({bias->dims[0]}, bias->as_floats()));
}

const Tensor& convolution_weight(Importer& importer, const Node& node) {
  const Tensor& weight = importer.needed_constant(node, 1, "the weight");
  if (weight.dims.size() != 4)
    fail(node,
         fmt::format("a weight of {} axes; expected 4, of a convolution over height and width", weight.dims.size()));
  if (weight.elements() == 0) fail(node, "a weight without values");
  const std::vector<std::int64_t> kernel = integers(node, "kernel_shape");
  if (!kernel.empty() && kernel != std::vector<std::int64_t>(weight.dims.begin() + 2, weight.dims.end()))
    fail(node, "kernel_shape is not that of the weight");
  return weight;
}

void set_window(ImportedLayer& layer, const ImageWindow& window) {
  layer.set("kernel", pair_text(window.kernel[0], window.kernel[1]));
  if (window.stride != std::array<std::int64_t, 2>{1, 1})
    layer.set("stride", pair_text(window.stride[0], window.stride[1]));
  if (window.dilation != std::array<std::int64_t, 2>{1, 1})
    layer.set("dilation", pair_text(window.dilation[0], window.dilation[1]));
  set_padding(layer, window);
}

void convert_conv(Importer& importer, const Node& node) {
  const Tensor& weight = convolution_weight(importer, node);
  const int image = importer.image(node, 0);
  const Shape in = importer.layers().shape(image);
  const std::int64_t groups = integer(node, "group", 1), filters = weight.dims[0], depth = weight.dims[1];
  if (groups < 1 || in[2] % groups != 0 || in[2] / groups != depth || filters % groups != 0)
    fail(node, fmt::format("a weight of {} filters over {} channels, in {} groups, does not fit {} channels", filters,
                           depth, groups, in[2]));
  const ImageWindow window = read_window(node, std::span(weight.dims).subspan(2), in);
  const bool depthwise = groups == in[2] && groups > 1;
  ImportedLayer layer{.kind = depthwise ? "depthwise_conv2d" : "conv2d", .inputs = {image}, .name = module_name(node)};
  if (!depthwise) layer.set("filters", fmt::format("{}", filters));
  set_window(layer, window);
  if (depthwise && filters != groups) layer.set("multiplier", fmt::format("{}", filters / groups));
  if (!depthwise && groups != 1) layer.set("groups", fmt::format("{}", groups));
  const auto [h, w] = window.kernel;
  layer.tensors.emplace("weight", depthwise ? host_tensor({h, w, filters}, permuted(weight, {2, 3, 0, 1}))
                                            : host_tensor({filters, h, w, depth}, permuted(weight, {0, 2, 3, 1})));
  set_bias(importer, node, layer);
  importer.define_image(node, importer.add(node, std::move(layer)));
}

void convert_transposed(Importer& importer, const Node& node) {
  const Tensor& weight = convolution_weight(importer, node);
  const int image = importer.image(node, 0);
  const Shape in = importer.layers().shape(image);
  const std::int64_t groups = integer(node, "group", 1), depth = weight.dims[1];
  if (weight.dims[0] != in[2] || groups < 1 || in[2] % groups != 0 || depth > (1 << 24) || groups > (1 << 24))
    fail(node, fmt::format("a weight of {} channels in {} groups does not fit {}", weight.dims[0], groups, in[2]));
  if (has_attribute(node, "output_shape")) fail(node, "output_shape is not supported; pads are");
  ImageWindow window = read_window(node, std::span(weight.dims).subspan(2), in);
  const std::string automatic = text(node, "auto_pad", "NOTSET");
  if (automatic == "SAME_LOWER") fail(node, "auto_pad SAME_LOWER is not supported; SAME_UPPER is");
  window.same = automatic == "SAME_UPPER";
  for (const std::size_t i : {0u, 1u})  // the standard and ONNX Runtime have outputs of other sizes then
    if (window.same && (window.kernel[i] - 1) * window.dilation[i] + 1 < window.stride[i])
      fail(node, "auto_pad SAME_UPPER with strides larger than the kernel is not supported; pads are");
  ImportedLayer layer{.kind = "transposed_conv2d", .inputs = {image}, .name = module_name(node)};
  layer.set("filters", fmt::format("{}", depth * groups));
  set_window(layer, window);
  const std::vector<std::int64_t> more = integers(node, "output_padding", {0, 0});
  if (more.size() != 2) fail(node, "output_padding: expected two numbers");
  if (more[0] != 0 || more[1] != 0) layer.set("output_padding", pair_text(more[0], more[1]));
  if (groups != 1) layer.set("groups", fmt::format("{}", groups));
  const auto [h, w] = window.kernel;
  layer.tensors.emplace("weight", host_tensor({in[2], h, w, depth}, permuted(weight, {0, 2, 3, 1})));
  set_bias(importer, node, layer);
  importer.define_image(node, importer.add(node, std::move(layer)));
}

/// A matrix of a node: element (unit, input) at unit · units_step + input · inputs_step.
struct Matrix {
  std::vector<float> values;
  std::int64_t units = 0, inputs = 0, units_step = 0, inputs_step = 0;
};

Matrix matrix_of(Importer& importer, const Node& node, bool transposed) {
  const Tensor& weight = importer.needed_constant(node, 1, "the weight");
  if (weight.dims.size() != 2 || weight.elements() == 0)
    fail(node, fmt::format("a weight of {} axes; expected 2", weight.dims.size()));
  const std::int64_t rows = weight.dims[0], columns = weight.dims[1];
  if (transposed) return {weight.as_floats(), rows, columns, columns, 1};
  return {weight.as_floats(), columns, rows, 1, columns};
}

/// (units, inputs), the inputs in the order in which the layer before has them.
std::vector<float> ordered(const Matrix& matrix, std::span<const std::int64_t> inputs, float factor) {
  std::vector<float> values;
  values.reserve(matrix.values.size());
  for (std::int64_t unit = 0; unit < matrix.units; ++unit)
    for (const std::int64_t input : inputs)
      values.push_back(factor *
                       matrix.values[static_cast<std::size_t>(unit * matrix.units_step + input * matrix.inputs_step)]);
  return values;
}

/// Sets the bias of a Gemm, if it has one.
void set_gemm_bias(Importer& importer, const Node& node, const Matrix& matrix, ImportedLayer& layer) {
  const Tensor* bias = node.op == "Gemm" ? importer.constant(node, 2) : nullptr;
  if (bias == nullptr) return layer.set("bias", "false");
  std::vector<float> values = bias->as_floats();
  if (values.size() == 1) values.assign(static_cast<std::size_t>(matrix.units), values[0]);
  if (std::ssize(values) != matrix.units ||
      (!bias->dims.empty() && bias->dims.back() != std::ssize(values) && bias->elements() != 1))
    fail(node, fmt::format("a bias of {} values; expected {}", values.size(), matrix.units));
  for (float& value : values) value *= number(node, "beta", 1);
  layer.tensors.emplace("bias", host_tensor({matrix.units}, values));
}

/// The product of a value (batch, n), whose weights may be in any order.
View product_of_vectors(Importer& importer, const Node& node, const View& given, const Matrix& matrix,
                        ImportedLayer layer, float alpha) {
  const View view = importer.vector(node, given);
  if (view.extent(0) != matrix.inputs)
    fail(node, fmt::format("a weight for {} inputs; there are {}", matrix.inputs, view.extent(0)));
  layer.kind = "dense";
  layer.inputs = {view.layer};
  layer.options.insert(layer.options.begin(), {"units", fmt::format("{}", matrix.units)});
  layer.tensors.emplace("weight",
                        host_tensor({matrix.units, matrix.inputs}, ordered(matrix, value_places(view), alpha)));
  const int dense = importer.add(node, std::move(layer));
  return view_of(dense, importer.layers().shape(dense), std::vector<int>{0});
}

/// Over the last axis of a value of several: the channels of an image, which a convolution of 1 x 1 multiplies, or of
/// tokens.
View product_of_channels(Importer& importer, const Node& node, View view, const Matrix& matrix, ImportedLayer layer,
                         float alpha) {
  if (view.axes.empty()) fail(node, "a value of the batch's axis alone; expected (batch, features)");
  const std::size_t axis = view.axes.size() - 1;
  if (view.extent(axis) != matrix.inputs)
    fail(node, fmt::format("a weight for {} inputs; there are {}", matrix.inputs, view.extent(axis)));
  view = merged(importer.innermost(node, view, axis));
  if (view.axes.back().size() > 1) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i <= axis; ++i) order.push_back(i);
    view = importer.in_order(node, view, order);
  }
  std::vector<std::int64_t> inputs(static_cast<std::size_t>(matrix.inputs));
  std::iota(inputs.begin(), inputs.end(), std::int64_t{0});
  const bool image = importer.layers().shape(view.layer).rank() == 3;
  layer.kind = image ? "conv2d" : "dense";
  layer.inputs = {view.layer};
  if (image) layer.options.insert(layer.options.begin(), {"kernel", "1"});
  layer.options.insert(layer.options.begin(), {image ? "filters" : "units", fmt::format("{}", matrix.units)});
  const Shape shape = image ? Shape{matrix.units, 1, 1, matrix.inputs} : Shape{matrix.units, matrix.inputs};
  layer.tensors.emplace("weight", host_tensor(shape, ordered(matrix, inputs, alpha)));
  view.layer = importer.add(node, std::move(layer));
  if (!view.axes.back().empty()) view.atoms.pop_back();
  view.axes.back().clear();
  if (matrix.units > 1) {
    view.axes.back().push_back(static_cast<int>(view.atoms.size()));
    view.atoms.push_back(matrix.units);
  }
  return view;
}

void convert_gemm(Importer& importer, const Node& node) {
  importer.define(node, matrix_product(importer, node, importer.vector(node, 0)));
}

constexpr std::string_view kTwoValues =
    "expected the network's values times a constant matrix; products of two values have no layer, but attention's";

void convert_matmul(Importer& importer, const Node& node) {
  if (!importer.is_constant(node, 0) && !importer.is_constant(node, 1)) {
    Products products{importer.with_batch(node, 0), importer.with_batch(node, 1)};
    const std::size_t rank = products.keys.axes.size();
    if (rank < 3 || products.queries.axes.size() != rank) fail(node, kTwoValues);
    std::swap(products.keys.axes[rank - 2], products.keys.axes[rank - 1]);
    return importer.define_products(node, std::move(products));
  }
  if (importer.is_constant(node, 0)) fail(node, kTwoValues);
  importer.define(node, matrix_product(importer, node, importer.value(node, 0)));
}

constexpr std::pair<std::string_view, Converter> kConvolutionConverters[] = {
    {"Conv", convert_conv}, {"ConvTranspose", convert_transposed}, {"Gemm", convert_gemm}, {"MatMul", convert_matmul}};

}  // namespace

View matrix_product(Importer& importer, const Node& node, const View& view) {
  const bool gemm = node.op == "Gemm";
  if (gemm && integer(node, "transA", 0) != 0) fail(node, "transA is not supported: the batch is the first axis");
  const Matrix matrix = matrix_of(importer, node, gemm && integer(node, "transB", 0) != 0);
  ImportedLayer layer;
  layer.name = module_name(node);
  set_gemm_bias(importer, node, matrix, layer);
  const float alpha = gemm ? number(node, "alpha", 1) : 1;
  return view.axes.size() == 1 ? product_of_vectors(importer, node, view, matrix, std::move(layer), alpha)
                               : product_of_channels(importer, node, view, matrix, std::move(layer), alpha);
}

Converters convolution_converters() { return kConvolutionConverters; }

}  // namespace bantam::onnx
