// Attention: products of queries and keys, their softmax, and products with the values; or the op of opset 23. And
// nodes between the dense layers around it, which read values whose batch is not the first axis.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "bantam/models/onnx/import/importer.h"

namespace bantam::onnx {
namespace {

/// Extents of queries, keys and values: (heads, tokens, size) of a sample.
struct Heads {
  std::int64_t count = 1, tokens = 1, size = 1;
  bool after_batch = true;  ///< or the batch after them, in the order of the axes

  std::int64_t channels() const { return count * size; }
};

View joined_heads(const View& x) {
  View joined = x;
  joined.axes = {{}, x.axes[x.axes.size() - 2], x.axes.back()};
  for (std::size_t i = 0; i + 2 < x.axes.size(); ++i)
    joined.axes[0].insert(joined.axes[0].end(), x.axes[i].begin(), x.axes[i].end());
  return joined;
}

/// x (…, tokens, size), a view with the batch, as a view of a sample (heads, tokens, size). Nothing where the axes
/// before the tokens' are not the heads and the batch in the order that `heads` says.
std::optional<View> by_head(const View& x, const Heads& heads, std::int64_t samples) {
  std::vector<std::int64_t> extents{heads.count, heads.tokens, heads.size};
  const std::size_t batch = heads.after_batch ? 0 : 1;
  extents.insert(extents.begin() + static_cast<std::ptrdiff_t>(batch), samples);
  auto view = reshaped(joined_heads(x), extents);
  if (!view) return std::nullopt;
  view = with_whole_batch(std::move(*view), samples);
  if (samples > 1 && view->axes[batch] != std::vector<int>{0}) return std::nullopt;
  View result = batch_taken(std::move(*view), samples);
  result.axes.erase(result.axes.begin() + static_cast<std::ptrdiff_t>(batch));
  return result;
}

/// The heads of the queries, which keys and values must have.
Heads heads_of(const Node& node, const View& x, std::int64_t samples) {
  const View joined = joined_heads(x);
  Heads heads{joined.extent(0) / samples, joined.extent(1), joined.extent(2)};
  for (const bool after_batch : {true, false}) {
    heads.after_batch = after_batch;
    if (heads.count > 0 && by_head(x, heads, samples)) return heads;
  }
  fail(node,
       "its queries are not (batch, heads, tokens, size): samples and heads, or the tokens of several samples, "
       "lie within each other");
}

/// The layer whose output is (…, heads · size), as `attention` reads it.
int layer_of(Importer& importer, const Node& node, const View& x, const Heads& heads, std::string_view what) {
  const View joined = joined_heads(x);
  const auto view = by_head(x, heads, importer.samples());
  if (!view)
    fail(node, fmt::format("its {} are ({}, {}) of {} heads and samples in another order than its queries, ({}, {}) of "
                           "{} heads; expected the same",
                           what, joined.extent(1), joined.extent(2), joined.extent(0) / importer.samples(),
                           heads.tokens, heads.size, heads.count));
  View rows = *view;  // (tokens, heads · size)
  rows.axes = {view->axes[1], view->axes[0]};
  rows.axes[1].insert(rows.axes[1].end(), view->axes[2].begin(), view->axes[2].end());
  constexpr std::size_t kOrder[] = {0, 1};
  const Shape& shape = importer.layers().shape(view->layer);
  if (is_in_order(rows, kOrder) && shape.rank() >= 2 && shape[-1] == heads.channels()) return view->layer;
  return importer.in_order(node, rows, kOrder).layer;
}

/// Queries, keys or values as channels of `layer` from `begin` on, times a number.
struct Part {
  int layer = kInput;
  std::int64_t begin = 0;
  float factor = 1;
};

Part part_of(const LayerList& layers, int place) {
  Part part{.layer = place};
  while (part.layer != kInput) {
    const ImportedLayer& layer = layers[part.layer];
    if (layer.kind == "channel_slice") {
      if (const std::string* begin = layer.option("begin")) part.begin += std::stoll(*begin);
    } else if (layer.kind == "layer_scale") {
      const std::span<const float> scale = float_values(layer.tensors.at("scale"));
      if (std::ranges::any_of(scale, [&](float value) { return value != scale[0]; })) break;
      part.factor *= scale[0];
    } else {
      break;
    }
    part.layer = layer.inputs[0];
  }
  return part;
}

/// Whether the three are dense layers, or convolutions of 1 x 1, of one value, which nothing else reads.
bool are_products_of_one(const Importer& importer, const std::array<Part, 3>& parts) {
  const LayerList& layers = importer.layers();
  return std::ranges::all_of(parts, [&](const Part& part) {
    if (part.layer == kInput || part.begin != 0 || !importer.is_exclusive(part.layer)) return false;
    const ImportedLayer &layer = layers[part.layer], &first = layers[parts[0].layer];
    const std::string* kernel = layer.option("kernel");
    const bool pointwise = layer.kind == "conv2d" && kernel != nullptr && *kernel == "1" && layer.options.size() <= 3;
    return (layer.kind == "dense" || pointwise) && layer.kind == first.kind && layer.inputs == first.inputs &&
           layer.output == first.output && !layer.option("activation") && !layer.option("stride") &&
           !layer.option("padding") && !layer.option("groups");
  });
}

/// One layer of three products' units one after the other.
int joined_products(Importer& importer, const Node& node, const std::array<Part, 3>& parts, std::int64_t channels) {
  const ImportedLayer& first = importer.layers()[parts[0].layer];
  ImportedLayer joined{.kind = first.kind, .options = first.options, .inputs = first.inputs};
  std::vector<float> weight, bias;
  bool has_bias = false;
  for (const Part& part : parts) {
    const std::map<std::string, HostTensor>& tensors = importer.layers()[part.layer].tensors;
    const std::span<const float> values = float_values(tensors.at("weight"));
    weight.insert(weight.end(), values.begin(), values.end());
    const auto found = tensors.find("bias");
    has_bias = has_bias || found != tensors.end();
    const std::span<const float> terms =
        found == tensors.end() ? std::span<const float>() : float_values(found->second);
    bias.insert(bias.end(), terms.begin(), terms.end());
    bias.resize(bias.size() + static_cast<std::size_t>(channels) - terms.size());
  }
  joined.options[0].second = fmt::format("{}", 3 * channels);  // units or filters
  joined.erase("bias");
  if (has_bias)
    joined.tensors.emplace("bias", host_tensor({3 * channels}, bias));
  else
    joined.set("bias", "false");
  joined.tensors.emplace("weight", host_tensor(first.tensors.at("weight").shape.with(0, 3 * channels), weight));
  joined.name =
      first.name.substr(0, first.name.rfind('.') == std::string::npos ? 0 : first.name.rfind('.') + 1) + "qkv";
  return importer.add(node, std::move(joined));
}

/// The layer that attention reads, queries, keys and values side by side: the one of which the three are parts, one of
/// all their units, or `concat`. `factors` are then those of the three that are left.
int joined_layer(Importer& importer, const Node& node, const std::array<int, 3>& layers, std::int64_t channels,
                 std::array<double, 3>& factors) {
  std::array<Part, 3> parts;
  for (std::size_t i = 0; i < 3; ++i) parts[i] = part_of(importer.layers(), layers[i]);
  const auto at = [&](std::size_t i) {
    return parts[i].layer == parts[0].layer && parts[i].begin == static_cast<std::int64_t>(i) * channels;
  };
  const bool whole = parts[0].layer != kInput && importer.layers().shape(parts[0].layer)[-1] == 3 * channels;
  const bool packed = whole && at(0) && at(1) && at(2), products = !packed && are_products_of_one(importer, parts);
  if (!packed && !products)
    return importer.add(node, {.kind = "concat", .inputs = {layers.begin(), layers.end()}, .name = "concat"});
  for (std::size_t i = 0; i < 3; ++i) factors[i] *= parts[i].factor;
  return packed ? parts[0].layer : joined_products(importer, node, parts, channels);
}

/// softmax(factor · q · kᵀ) · v. All are views with the batch, (…, tokens, size), and so is the result.
View attend(Importer& importer, const Node& node, const Products& products, const View& v) {
  const View& q = products.queries;
  const Heads heads = heads_of(node, q, importer.samples());
  std::array<int, 3> layers{layer_of(importer, node, q, heads, "queries"),
                            layer_of(importer, node, products.keys, heads, "keys"),
                            layer_of(importer, node, v, heads, "values")};
  const bool alike = std::ranges::all_of(
      layers, [&](int layer) { return importer.layers().shape(layer) == importer.layers().shape(layers[0]); });
  if (!alike)
    for (int& layer : layers) layer = importer.ordered(node, {.layer = layer}, {heads.tokens, heads.channels()}).layer;
  // The layer multiplies q · kᵀ by 1/√size: what is left of the factors is the queries'.
  std::array<double, 3> factors{products.factor * std::sqrt(static_cast<double>(heads.size)), 1, 1};
  int qkv = joined_layer(importer, node, layers, heads.channels(), factors);
  factors[0] *= factors[1];
  factors[1] = 1;
  if (std::ranges::any_of(factors, [](double factor) { return std::abs(factor - 1) > 1e-5; })) {
    ImportedLayer scale{.kind = "layer_scale", .inputs = {qkv}, .name = "scale"};
    std::vector<float> values;
    for (const double factor : factors)
      values.insert(values.end(), static_cast<std::size_t>(heads.channels()), static_cast<float>(factor));
    scale.tensors.emplace("scale", host_tensor({3 * heads.channels()}, values));
    qkv = importer.add(node, std::move(scale));
  }
  ImportedLayer layer{.kind = "attention", .options = {{"heads", fmt::format("{}", heads.count)}}, .inputs = {qkv}};
  layer.name = name_of_path(node.module.empty() ? node.name : node.module, node.op);
  if (qkv != kInput && layer.name == importer.layers()[qkv].name) layer.name += ".attention";
  const int attention = importer.add(node, std::move(layer));
  View result = with_batch(view_of(attention, Shape{heads.tokens, heads.count, heads.size}, std::vector<int>{1, 0, 2}),
                           importer.samples());
  if (!heads.after_batch) std::swap(result.axes[0], result.axes[1]);
  return *reshaped(std::move(result), q.extents());
}

/// (batch, tokens, heads · size) as (batch, heads, tokens, size).
View split_heads(const Node& node, const View& x, std::int64_t heads) {
  const std::vector<std::int64_t> all = x.extents();
  std::optional<View> view;
  if (heads > 0 && all[2] % heads == 0) view = reshaped(x, std::vector{all[0], all[1], heads, all[2] / heads});
  if (!view) fail(node, fmt::format("{} heads of {} channels; expected a divisor of them", heads, all[2]));
  std::swap(view->axes[1], view->axes[2]);
  return *view;
}

/// The op of opset 23: of (batch, heads, tokens, size), or (batch, tokens, heads · size) with the number of heads.
void convert_attention(Importer& importer, const Node& node) {
  if (node.inputs.size() < 3)
    fail(node, fmt::format("{} inputs; expected queries, keys and values", node.inputs.size()));
  for (std::size_t i = 3; i < node.inputs.size(); ++i)
    if (importer.has(node, i)) fail(node, "has a mask or keys and values of tokens before; expected none");
  if (integer(node, "is_causal", 0) != 0) fail(node, "is causal; expected attention of all tokens to one another");
  if (number(node, "softcap", 0) != 0) fail(node, "has a softcap; expected none");
  for (std::size_t i = 1; i < node.outputs.size(); ++i)
    if (importer.is_used(node.outputs[i])) fail(node, fmt::format("output {} is used; layers have one", i));
  std::array<View, 3> qkv;
  for (std::size_t i = 0; i < 3; ++i) qkv[i] = importer.with_batch(node, i);
  const std::size_t axes = qkv[0].axes.size();
  if (qkv[1].axes.size() != axes || qkv[2].axes.size() != axes || (axes != 3 && axes != 4))
    fail(node, "expected queries, keys and values (batch, heads, tokens, size) or (batch, tokens, heads · size)");
  if (axes == 3)
    for (std::size_t i = 0; i < 3; ++i)
      qkv[i] = split_heads(node, qkv[i], integer(node, i == 0 ? "q_num_heads" : "kv_num_heads", 0));
  Products products{std::move(qkv[0]), std::move(qkv[1])};
  const auto size = static_cast<float>(products.queries.extent(3));
  products.factor = has_attribute(node, "scale") ? number(node, "scale", 1) : 1 / std::sqrt(size);
  View result = attend(importer, node, products, qkv[2]);
  if (axes == 4) return importer.define_moved(node, 0, std::move(result));
  std::swap(result.axes[1], result.axes[2]);
  const std::vector<std::int64_t> all = result.extents();
  importer.define_moved(node, 0, *reshaped(std::move(result), std::vector{all[0], all[1], all[2] * all[3]}));
}

/// A node that reads products of queries and keys, or of their softmax.
void convert_products(Importer& importer, const Node& node, std::size_t input) {
  Products products = *importer.products(node, input);
  const auto last = static_cast<std::int64_t>(products.queries.axes.size()) - 1;
  if (node.op == "Identity" || node.op == "Cast") return importer.define_products(node, std::move(products));
  if (node.op == "Dropout") {
    importer.note("dropout of attention's weights is left out");
    return importer.define_products(node, std::move(products));
  }
  if ((node.op == "Mul" || (node.op == "Div" && input == 0)) && !products.softmax &&
      importer.is_constant(node, 1 - input)) {
    const std::vector<float> factor = importer.constant(node, 1 - input)->as_floats();
    if (factor.size() != 1) fail(node, "multiplies the products of queries and keys by several numbers; expected one");
    products.factor = node.op == "Mul" ? products.factor * factor[0] : products.factor / factor[0];
    return importer.define_products(node, std::move(products));
  }
  if (node.op == "Softmax" && !products.softmax) {
    const std::int64_t axis = integer(node, "axis", importer.opset() < 13 ? 1 : -1);
    if (axis != -1 && axis != last)
      fail(node, fmt::format("over axis {}; expected that of the keys, the last one", axis));
    products.softmax = true;
    return importer.define_products(node, std::move(products));
  }
  if (node.op == "MatMul" && products.softmax && input == 0 && !importer.is_constant(node, 1) &&
      importer.products(node, 1) == nullptr) {
    const View values = importer.with_batch(node, 1);
    if (values.axes.size() != products.queries.axes.size())
      fail(node, fmt::format("values of {} axes; expected {}", values.axes.size(), products.queries.axes.size()));
    return importer.define_moved(node, 0, attend(importer, node, products, values));
  }
  fail(node,
       fmt::format("reads {}, as in attention; expected {}: masks, position biases and other ops between them "
                   "are not supported",
                   products.softmax ? "the softmax of products of two values" : "products of two values",
                   products.softmax ? "a product with a third (MatMul)" : "one factor (Mul, Div) and their Softmax"));
}

/// Converts the node's input, a value whose batch is elsewhere, by a function of views without the batch.
template <class Function>
View elsewhere(const Importer& importer, const Node& node, const View& view, const Function& function) {
  const auto place = place_of_batch(view, importer.samples());
  if (!place) fail(node, "of a value whose samples were taken apart");
  auto result = batch_put(function(batch_taken(view, importer.samples())), *place, importer.samples());
  if (!result) fail(node, "of a value whose samples lie within another axis");
  return *result;
}

View part_along(Importer& importer, const Node& node, std::size_t axis, std::int64_t begin, std::int64_t end) {
  const View view = importer.with_batch(node, 0);
  const auto place = place_of_batch(view, importer.samples());
  if (!place || (place->axis == axis && importer.samples() > 1)) fail(node, "works along the batch");
  return elsewhere(importer, node, view,
                   [&](const View& sample) { return cut(importer, node, sample, axis, begin, end); });
}

void convert_moved_gather(Importer& importer, const Node& node) {
  const View view = importer.with_batch(node, 0);
  const Tensor& tensor = importer.needed_constant(node, 1, "the indices");
  if (view.axes.size() == 1 || tensor.elements() != 1) {
    const auto parts = part_converters();
    return std::ranges::find(parts, "Gather", &std::pair<std::string_view, Converter>::first)->second(importer, node);
  }
  const std::size_t axis = checked_axis(node, integer(node, "axis", 0), view.axes.size());
  const std::int64_t extent = view.extent(axis), given = tensor.as_integers()[0];
  if (given < -extent || given >= extent) fail(node, fmt::format("index {} of {}", given, extent));
  const std::int64_t index = given < 0 ? given + extent : given;
  View result = part_along(importer, node, axis, index, index + 1);
  if (tensor.dims.empty()) result.axes.erase(result.axes.begin() + static_cast<std::ptrdiff_t>(axis));
  importer.define_moved(node, 0, std::move(result));
}

void convert_moved_split(Importer& importer, const Node& node) {
  const View view = importer.with_batch(node, 0);
  const std::size_t axis = checked_axis(node, integer(node, "axis", 0), view.axes.size());
  const std::vector<std::int64_t> sizes = split_sizes(importer, node, view.extent(axis));
  if (sizes.size() != node.outputs.size())
    fail(node, fmt::format("{} parts for {} outputs", sizes.size(), node.outputs.size()));
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < sizes.size(); begin += sizes[i++])
    if (importer.is_used(node.outputs[i]))
      importer.define_moved(node, i, part_along(importer, node, axis, begin, begin + sizes[i]));
}

void convert_moved_slice(Importer& importer, const Node& node) {
  const View view = importer.with_batch(node, 0);
  const std::vector<SliceRange> ranges = slice_ranges(node, importer.constants(node), view.axes.size());
  if (ranges.size() != 1) fail(node, fmt::format("{} axes; expected one", ranges.size()));
  const SliceRange range = resolved(node, ranges[0], view.extents());
  if (range.step != 1) fail(node, fmt::format("a step of {} where the batch is not the first axis", range.step));
  if (range.start == range.end) fail(node, fmt::format("leaves nothing of axis {}", range.axis));
  importer.define_moved(node, 0,
                        part_along(importer, node, static_cast<std::size_t>(range.axis), range.start, range.end));
}

/// MatMul and Gemm over the last axis.
void convert_moved_product(Importer& importer, const Node& node) {
  for (const std::size_t i : {0u, 1u})
    if (importer.products(node, i) != nullptr) return convert_products(importer, node, i);
  if (!importer.is_constant(node, 1) || importer.moved(node, 0) == nullptr) {
    const auto products = convolution_converters();
    return std::ranges::find(products, node.op, &std::pair<std::string_view, Converter>::first)->second(importer, node);
  }
  importer.define_moved(node, 0, elsewhere(importer, node, *importer.moved(node, 0), [&](const View& sample) {
                          return matrix_product(importer, node, sample);
                        }));
}

/// Add, Sub, Mul and Div with a constant.
void convert_moved_arithmetic(Importer& importer, const Node& node) {
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    if (importer.products(node, i) != nullptr) return convert_products(importer, node, i);
  if (node.inputs.size() != 2) fail(node, fmt::format("{} inputs; expected 2", node.inputs.size()));
  const std::size_t constant = importer.is_constant(node, 0) ? 0 : 1;
  const View* view = importer.moved(node, 1 - constant);
  if (view == nullptr || !importer.is_constant(node, constant)) (void)importer.value(node, view == nullptr ? 1 : 0);
  importer.define_moved(node, 0, elsewhere(importer, node, *view, [&](const View& sample) {
                          return with_constant(importer, node, sample, constant);
                        }));
}

/// Reads products in no other way, or fails.
void convert_unary(Importer& importer, const Node& node) {
  if (importer.products(node, 0) != nullptr) return convert_products(importer, node, 0);
  if (node.op != "Identity" && node.op != "Cast") (void)importer.value(node, 0);
  importer.define_moved(node, 0, importer.with_batch(node, 0));
}

constexpr std::pair<std::string_view, Converter> kAttentionConverters[] = {{"Attention", convert_attention}};

constexpr std::pair<std::string_view, Converter> kMovedConverters[] = {{"MatMul", convert_moved_product},
                                                                       {"Gemm", convert_moved_product},
                                                                       {"Add", convert_moved_arithmetic},
                                                                       {"Sub", convert_moved_arithmetic},
                                                                       {"Mul", convert_moved_arithmetic},
                                                                       {"Div", convert_moved_arithmetic},
                                                                       {"Gather", convert_moved_gather},
                                                                       {"Split", convert_moved_split},
                                                                       {"Slice", convert_moved_slice},
                                                                       {"Softmax", convert_unary},
                                                                       {"Dropout", convert_unary},
                                                                       {"Identity", convert_unary},
                                                                       {"Cast", convert_unary}};

}  // namespace

Converters attention_converters() { return kAttentionConverters; }
Converters moved_converters() { return kMovedConverters; }

}  // namespace bantam::onnx
