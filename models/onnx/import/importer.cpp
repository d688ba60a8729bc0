// From nodes to layers, one after the other; then the list is simplified, named and written.
#include "bantam/models/onnx/import/importer.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/config/config.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/models/onnx/import/composites.h"
#include "bantam/models/yaml/network.h"

namespace bantam::onnx {
namespace {

constexpr std::int64_t kMostChannels = std::int64_t{1} << 24;  // as a configuration's
constexpr std::int64_t kMostExtent = std::int64_t{1} << 20;

std::vector<std::pair<std::string_view, Converter>> all_converters() {
  std::vector<std::pair<std::string_view, Converter>> all;
  for (const Converters converters :
       {convolution_converters(), norm_converters(), pool_converters(), activation_converters(),
        arithmetic_converters(), image_converters(), part_converters(), view_converters(), attention_converters()})
    all.insert(all.end(), converters.begin(), converters.end());
  return all;
}

/// Ops that have no converter, each with the kind of network it stands for: the error names it, as a reason.
constexpr std::pair<std::string_view, std::string_view> kHints[] = {
    {"ReduceL2", "a norm over an image that is no part of a global response normalization"},
    {"LSTM", "a recurrent network"},
    {"GRU", "a recurrent network"},
    {"RNN", "a recurrent network"},
    {"Einsum", "a product of two values: attention is imported as products (MatMul) or as the op Attention"},
    {"NonMaxSuppression", "detection; --output names an output before it"},
    {"QuantizeLinear", "a quantized network: export it in float32"},
    {"DequantizeLinear", "a quantized network: export it in float32"},
    {"QLinearConv", "a quantized network: export it in float32"},
    {"ConvInteger", "a quantized network: export it in float32"}};

Converter find_converter(const Node& node) {
  static const auto all = all_converters();
  const auto found = std::ranges::find(all, node.op, &std::pair<std::string_view, Converter>::first);
  if (node.domain.empty() && found != all.end()) return found->second;
  if (!node.domain.empty()) fail(node, fmt::format("ops of the domain '{}' are not supported", shown(node.domain)));
  const auto* hint = std::ranges::find(kHints, node.op, &std::pair<std::string_view, std::string_view>::first);
  fail(node, fmt::format("there is no layer for this op{}; docs/ONNX.md lists those that are imported",
                         hint == std::end(kHints) ? "" : fmt::format(" ({})", hint->second)));
}

Converter find_moved_converter(const Node& node) {
  const Converters converters = moved_converters();
  const auto found = std::ranges::find(converters, node.op, &std::pair<std::string_view, Converter>::first);
  return node.domain.empty() && found != converters.end() ? found->second : find_converter(node);
}

/// Inputs of a graph that are no initializers, which older files list as well.
const Value& only_input(const Model& model, const Constants& constants) {
  std::vector<const Value*> inputs;
  std::vector<std::string> names;
  for (const Value& input : model.inputs)
    if (constants.find(input.name) == nullptr) {
      inputs.push_back(&input);
      names.push_back("'" + shown(input.name) + "'");
    }
  if (inputs.size() != 1)
    throw DataError(fmt::format("the model has {} inputs{}; expected one", inputs.size(),
                                names.empty() ? "" : " (" + join(names, ", ", " and ") + ")"));
  return *inputs[0];
}

/// The output that the network has: the only one, or the one that `wanted` names.
const std::string& output_of(const Model& model, const std::string& wanted) {
  std::vector<std::string> names;
  for (const Value& output : model.outputs) {
    if (output.name == wanted && !wanted.empty()) return output.name;
    names.push_back("'" + shown(output.name) + "'");
  }
  const std::string all = names.empty() ? "" : " (" + join(names, ", ", " and ") + ")";
  if (!wanted.empty())
    throw DataError(fmt::format("the model has no output '{}'; it has {}{}", shown(wanted), names.size(), all));
  if (names.size() == 1) return model.outputs[0].name;
  throw DataError(
      fmt::format("the model has {} outputs{}; expected one{}", names.size(), all,
                  names.empty() ? "" : fmt::format(": choose it with --output {}", shown(model.outputs[0].name))));
}

/// Whether images reach the first Transpose, to (batch, channels, height, width), through ops of single values alone.
bool begins_with_transpose(const Model& model, std::string value) {
  for (const Node& node : model.nodes) {
    if (std::ranges::find(node.inputs, value) == node.inputs.end() || node.outputs.empty()) continue;
    if (node.op == "Transpose") return integers(node, "perm") == std::vector<std::int64_t>{0, 3, 1, 2};
    constexpr std::string_view kOfValues[] = {"Cast", "Mul", "Div", "Add", "Sub", "Identity"};
    if (std::ranges::find(kOfValues, node.op) == std::end(kOfValues)) return false;
    value = node.outputs[0];
  }
  return false;
}

std::string text_of(const Value& value) {
  std::vector<std::string> extents;
  for (std::size_t i = 0; i < value.dims.size(); ++i)
    extents.push_back(value.dims[i] >= 0                                  ? fmt::format("{}", value.dims[i])
                      : i < value.names.size() && !value.names[i].empty() ? shown(value.names[i], 24)
                                                                          : "?");
  return "(" + join(extents, ", ", ", ") + ")";
}

}  // namespace

std::string pair_text(std::int64_t a, std::int64_t b) {
  return a == b ? fmt::format("{}", a) : fmt::format("[{}, {}]", a, b);
}

std::vector<std::string> supported_ops() {
  std::vector<std::string> ops{"Constant"};
  for (const auto& [op, convert] : all_converters()) ops.emplace_back(op);
  std::ranges::sort(ops);
  return ops;
}

Importer::Importer(const Model& model, const ImportOptions& options)
    : model_(model),
      options_(options),
      constants_(model),
      input_(only_input(model, constants_)),
      output_(output_of(model, options.output)),
      layers_(input_shape()) {
  define_input();
}

Shape Importer::input_shape() {
  std::vector<std::int64_t> dims = input_.dims;
  const auto refuse = [&](std::string_view expected) {
    throw DataError(
        fmt::format("the input '{}' has the extents {}; {}", shown(input_.name), text_of(input_), expected));
  };
  if (dims.size() < 2 || dims.size() > 4)
    refuse("expected (batch, channels, height, width), (batch, height, width, channels) or (batch, features)");
  if (dims[0] > 0) batch_ = dims[0];
  const bool last = has_channels_last();
  if (!options_.size.empty()) {
    if (dims.size() != 4 || options_.size.size() != 2) refuse("a height and a width are of images alone");
    for (const std::size_t i : {0u, 1u}) {
      std::int64_t& extent = dims[i + (last ? 1 : 2)];
      if (extent >= 0 && extent != options_.size[i]) refuse("its height and width cannot be others");
      extent = options_.size[i];
    }
  }
  for (std::size_t i = 1; i < dims.size(); ++i)
    if (dims[i] < 1 || dims[i] > kMostExtent)
      refuse(fmt::format("expected numbers from 1 to {} but for the batch: say the height and the width", kMostExtent));
  if (dims.size() == 2) return Shape{dims[1]};
  if (dims.size() == 3) return Shape{dims[1], dims[2], 1};
  return last ? Shape{dims[1], dims[2], dims[3]} : Shape{dims[2], dims[3], dims[1]};
}

/// Whether images are (batch, height, width, channels).
bool Importer::has_channels_last() const {
  return input_.dims.size() == 4 && begins_with_transpose(model_, input_.name);
}

void Importer::define_input() {
  const Shape& shape = layers_.shape(kInput);
  const bool last = has_channels_last();
  View view = image_view(kInput, shape.rank() == 3 ? shape : Shape{1, 1, shape[0]});
  if (shape.rank() == 1) view = view_of(kInput, shape, std::vector<int>{0});
  if (input_.dims.size() == 3) view = view_of(kInput, shape, std::vector<int>{0, 1});
  if (last) view = view_of(kInput, shape, std::vector<int>{0, 1, 2});
  if (last) note("images are (height, width, channels), as in the model");
  values_.emplace(input_.name, std::move(view));
}

bool Importer::has(const Node& node, std::size_t input) const {
  return input < node.inputs.size() && !node.inputs[input].empty();
}

bool Importer::is_constant(const Node& node, std::size_t input) const {
  return has(node, input) && constants_.find(node.inputs[input]) != nullptr;
}

const View& Importer::value(const Node& node, std::size_t input) const {
  if (!has(node, input)) fail(node, fmt::format("input {} is missing", input));
  const auto found = values_.find(node.inputs[input]);
  if (found != values_.end()) return found->second;
  const std::string& name = node.inputs[input];
  fail(node, fmt::format("input '{}' {}", shown(name),
                         is_constant(node, input) ? "is a constant; expected what the network computes"
                         : products_.contains(name)
                             ? "is a product of two values; expected its softmax and another product, as in attention"
                         : moved_.contains(name) && moved_.at(name).axes.size() == 1
                             ? "has the batch in one axis with the features; expected the batch apart"
                         : moved_.contains(name)
                             ? "was transposed or reshaped so that its batch is not the first axis; expected it there"
                         : sequences_.contains(name) ? "is a sequence; expected one of its elements"
                                                     : "is computed by no node before"));
}

const Tensor* Importer::constant(const Node& node, std::size_t input) const {
  if (!has(node, input)) return nullptr;
  if (const Tensor* tensor = constants_.find(node.inputs[input])) return tensor;
  fail(node, fmt::format("input {} ('{}') depends on the network's input; expected a constant", input,
                         shown(node.inputs[input])));
}

const Tensor& Importer::needed_constant(const Node& node, std::size_t input, std::string_view what) const {
  if (const Tensor* tensor = constant(node, input)) return *tensor;
  fail(node, fmt::format("input {} is missing: {}", input, what));
}

std::vector<const Tensor*> Importer::constants(const Node& node) const {
  std::vector<const Tensor*> tensors;
  for (const std::string& input : node.inputs) tensors.push_back(constants_.find(input));
  return tensors;
}

/// The view by a layer whose output has this shape, and the same values in the same order.
View Importer::ordered(const Node& node, View view, const Shape& shape) {
  if (layers_.shape(view.layer) == shape) return view;
  const std::string extents = to_string(shape);
  const bool pool = view.layer != kInput && layers_[view.layer].kind.starts_with("global_");
  const bool keeps = shape.rank() == 3 && shape == layers_.shape(view.layer).prepend(1).prepend(1);
  if (pool && keeps && is_exclusive(view.layer)) {
    layers_[view.layer].set("keepdims", "true");
    layers_.check(view.layer);
  } else if (shape.rank() == 1) {
    view.layer = add(node, {.kind = "flatten", .inputs = {view.layer}, .name = "flatten"});
  } else {
    view.layer = add(node, {.kind = "reshape",
                            .options = {{"shape", "[" + extents.substr(1, extents.size() - 2) + "]"}},
                            .inputs = {view.layer},
                            .name = "reshape"});
  }
  return view;
}

int Importer::image(const Node& node, const View& given) {
  const View view = unshuffled(node, given);
  if (view.axes.size() != 3)
    fail(node, fmt::format("a value of {} axes; expected 4: (batch, channels, height, width)", view.axes.size() + 1));
  constexpr std::size_t kOrder[] = {1, 2, 0};
  return in_order(node, view, kOrder).layer;
}

View Importer::in_order(const Node& node, const View& given, std::span<const std::size_t> order) {
  View view = given;
  std::vector<std::int64_t> extents;
  std::vector<int> axes(order.size());  // of the layer's output, by axis of the view
  for (std::size_t i = 0; i < order.size(); ++i) {
    extents.push_back(view.extent(order[i]));
    axes[order[i]] = static_cast<int>(i);
  }
  if (extents.empty() || extents.size() >= Shape::kMaxRank) fail(node, fmt::format("orders {} axes", extents.size()));
  if (!is_in_order(view, order)) {
    view = merged(std::move(view));
    if (view.atoms.size() >= Shape::kMaxRank)
      fail(node, fmt::format("its input was transposed and reshaped so that {} parts lie in another order; expected at "
                             "most {}",
                             view.atoms.size(), Shape::kMaxRank - 1));
    std::vector<int> dims;
    for (const std::size_t axis : order)
      for (const int atom : view.axes[axis]) dims.push_back(atom + 1);
    const int before = ordered(node, view, Shape(view.atoms)).layer;
    view.layer = add(node, {.kind = "permute",
                            .options = {{"dims", fmt::format("[{}]", fmt::join(dims, ", "))}},
                            .inputs = {before},
                            .name = "permute"});
  }
  const Shape shape(extents);
  return view_of(ordered(node, view, shape).layer, shape, axes);
}

View Importer::innermost(const Node& node, const View& view, std::size_t axis) {
  const Shape& shape = layers_.shape(view.layer);
  if (shape.rank() > 0 && is_innermost(view, axis, shape[-1])) return view;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < view.axes.size(); ++i)
    if (i != axis) order.push_back(i);
  order.push_back(axis);
  return in_order(node, view, order);
}

View Importer::unshuffled(const Node& node, const View& given) {
  View view = merged(given);
  const int last = static_cast<int>(view.atoms.size()) - 1;
  const auto shuffled = std::ranges::find(view.axes, std::vector<int>{last, last - 1});
  if (last < 1 || shuffled == view.axes.end()) return given;
  std::int64_t &groups = view.atoms[view.atoms.size() - 2], &size = view.atoms.back();
  if (layers_.shape(view.layer)[-1] != groups * size) return given;
  const auto [place, is_new] = shuffles_.try_emplace({view.layer, groups});
  if (is_new) {
    place->second = add(node, {.kind = "channel_shuffle",
                               .options = {{"groups", fmt::format("{}", groups)}},
                               .inputs = {view.layer},
                               .name = "channel_shuffle"});
    share(place->second);
  }
  view.layer = place->second;
  std::swap(groups, size);
  *shuffled = {last - 1, last};
  return merged(std::move(view));
}

View Importer::vector(const Node& node, const View& view) {
  if (view.axes.size() != 1)
    fail(node, fmt::format("a value of {} axes; expected 2: (batch, features)", view.axes.size() + 1));
  return ordered(node, view, {view.extent(0)});
}

int Importer::add(const Node& node, ImportedLayer layer) {
  if (layer.name.empty()) layer.name = name_of_path(node.module.empty() ? node.name : node.module, node.op);
  layer.node = describe(node);
  for (const auto& [name, tensor] : layer.tensors) layer_elements_ += tensor.shape.elements();
  if (layer_elements_ > constants_.most_elements())
    fail(node, fmt::format("the layers so far have tensors of {} values, and the model's own constants allow {}",
                           layer_elements_, constants_.most_elements()));
  return layers_.add(std::move(layer));
}

void Importer::define(const Node& node, View view) {
  for (std::size_t i = 1; i < node.outputs.size(); ++i)
    if (uses_.contains(node.outputs[i])) fail(node, fmt::format("output {} is used; layers have one", i));
  define_output(node, 0, std::move(view));
}

void Importer::define_output(const Node& node, std::size_t output, View view) {
  if (output >= node.outputs.size() || node.outputs[output].empty()) fail(node, "has no output");
  if (view.axes.size() > kMostAxes) fail(node, fmt::format("makes a value of more than {} axes", kMostAxes));
  const std::string& name = node.outputs[output];
  if (uses_[name] > 1) shared_.insert(view.layer);
  if (constants_.find(name) != nullptr || !values_.emplace(name, std::move(view)).second)
    fail(node, fmt::format("two values have the name '{}'", shown(name)));
}

void Importer::define_sequence(const Node& node, std::vector<View> views) {
  if (node.outputs.empty()) fail(node, "has no output");
  sequences_.insert_or_assign(node.outputs[0], std::move(views));
}

const std::vector<View>* Importer::sequence(const std::string& value) const {
  const auto found = sequences_.find(value);
  return found == sequences_.end() ? nullptr : &found->second;
}

View Importer::with_batch(const Node& node, std::size_t input) const {
  if (const View* view = moved(node, input)) return *view;
  const View& view = value(node, input);
  if (view.elements() > kOpenBatch) fail(node, fmt::format("a sample of {} values", view.elements()));
  return onnx::with_batch(view, samples());
}

const View* Importer::moved(const Node& node, std::size_t input) const {
  const auto found = has(node, input) ? moved_.find(node.inputs[input]) : moved_.end();
  return found == moved_.end() ? nullptr : &found->second;
}

void Importer::define_moved(const Node& node, std::size_t output, View view) {
  view = with_whole_batch(std::move(view), samples());
  if (auto plain = without_batch(view, samples())) return define_output(node, output, std::move(*plain));
  if (output >= node.outputs.size() || node.outputs[output].empty()) fail(node, "has no output");
  if (uses_[node.outputs[output]] > 1) shared_.insert(view.layer);
  moved_.insert_or_assign(node.outputs[output], std::move(view));
}

const Products* Importer::products(const Node& node, std::size_t input) const {
  const auto found = has(node, input) ? products_.find(node.inputs[input]) : products_.end();
  return found == products_.end() ? nullptr : &found->second;
}

void Importer::define_products(const Node& node, Products products) {
  if (node.outputs.empty()) fail(node, "has no output");
  products_.insert_or_assign(node.outputs[0], std::move(products));
}

void Importer::define_constant(const Node& node, Tensor tensor) {
  if (node.outputs.empty()) fail(node, "has no output");
  constants_.set(node.outputs[0], std::move(tensor));
}

void Importer::note(std::string text) {
  if (std::ranges::find(notes_, text) == notes_.end()) notes_.push_back(std::move(text));
}

bool Importer::is_exclusive(int layer) const { return layer != kInput && !shared_.contains(layer); }

std::optional<std::vector<float>> Importer::channel_values(const Node& node, const View& view,
                                                           const Tensor& constant) const {
  const Shape& shape = layers_.shape(view.layer);
  const std::int64_t channels = shape.rank() > 0 ? shape[-1] : 1;
  if (channels > kMostChannels) fail(node, fmt::format("{} channels; expected at most {}", channels, kMostChannels));
  const std::vector<float> values = constant.as_floats();
  const auto size = static_cast<std::size_t>(channels);
  const std::size_t axes = view.axes.size(), rank = constant.dims.size();
  if (rank > axes + 1 || (rank == axes + 1 && constant.dims[0] != 1)) return std::nullopt;
  if (values.size() == 1) return std::vector<float>(size, values[0]);
  // The one axis along which the constant differs must be the layer's last one.
  std::optional<std::size_t> differs;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t extent = constant.dims[rank - 1 - i];
    if (extent == 1) continue;
    if (differs || extent != channels || !is_innermost(view, axes - 1 - i, channels)) return std::nullopt;
    differs = axes - 1 - i;
  }
  if (!differs) return std::nullopt;
  View last{.atoms = {}, .axes = {{}}};
  const int begin = static_cast<int>(view.atoms.size() - view.axes[*differs].size());
  for (const int atom : view.axes[*differs]) last.axes[0].push_back(atom - begin);
  last.atoms.assign(view.atoms.begin() + begin, view.atoms.end());
  std::vector<float> ordered;
  for (const std::int64_t place : value_places(last)) ordered.push_back(values[static_cast<std::size_t>(place)]);
  return ordered;
}

/// Nodes that the output depends on, in their order. Constants are computed on the way, and groups of nodes replaced.
void Importer::find_needed(const std::vector<Node>& nodes) {
  std::vector<Node> rest;
  for (const Node& node : nodes)
    if (!constants_.reads_constants_alone(node) || !constants_.compute(node)) rest.push_back(node);
  rest = with_composites(std::move(rest), constants_);
  std::set<std::string> needed{output_};
  uses_[output_] = 2;  // whoever reads the network's output is not among the nodes
  for (auto node = rest.rbegin(); node != rest.rend(); ++node) {
    if (std::ranges::none_of(node->outputs, [&](const std::string& output) { return needed.contains(output); }))
      continue;
    for (const std::string& input : node->inputs)
      if (!input.empty()) {
        needed.insert(input);
        if (node->op != "Shape" && node->op != "Size") ++uses_[input];  // those read no values
      }
    nodes_.push_back(std::move(*node));
  }
  std::ranges::reverse(nodes_);
  if (uses_[input_.name] > 1) shared_.insert(kInput);
}

void Importer::convert(const Node& node) {
  if (node.domain.empty() && constants_.reads_constants_alone(node) && constants_.compute(node)) return;
  constants_.count_reading(node);
  bool differs = false;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) differs = differs || products(node, i) || moved(node, i);
  const Converter converter = differs ? find_moved_converter(node) : find_converter(node);
  const std::string place = describe(node);
  try {
    converter(*this, node);
  } catch (const Error& error) {
    const std::string what = error.what();
    if (what.starts_with("node ")) throw DataError(what);
    throw DataError(place + ": " + what);
  }
}

int Importer::output_layer() {
  const Node end{.name = output_, .op = "output", .inputs = {output_}};
  const auto found = values_.find(output_);
  if (moved(end, 0) != nullptr || products(end, 0) != nullptr) (void)value(end, 0);
  if (found == values_.end())
    throw DataError(fmt::format("the output '{}' {}", shown(output_),
                                constants_.find(output_) ? "is a constant" : "is computed by no node"));
  const std::size_t axes = found->second.axes.size();
  View view = unshuffled(end, found->second);
  std::vector<std::size_t> order(axes);
  std::iota(order.begin(), order.end(), std::size_t{0});
  constexpr std::size_t kImage[] = {1, 2, 0};
  const bool image_order = axes == 3 && (!has_channels_last() || is_in_order(view, kImage));
  if (axes == 1 || (!image_order && !is_in_order(view, order))) view = in_order(end, view, order);
  if (!is_in_order(view, order)) {
    view.layer = image(end, 0);
    note(fmt::format("the output is (height, width, channels) = {}", to_string(layers_.shape(view.layer))));
  }
  if (view.layer == kInput) throw DataError("the model has no layers");
  return view.layer;
}

/// The last dense layer has other units from now on.
void Importer::leave_out_classifier(int layer) {
  ImportedLayer& classifier = layers_[layer];
  if (options_.classes == 0) return;
  const std::string* units = classifier.option("units");
  if (classifier.kind != "dense" || units == nullptr)
    throw DataError(fmt::format("{}: the last layer is {}; expected a dense one for {} classes", classifier.node,
                                classifier.kind, options_.classes));
  if (*units == fmt::format("{}", options_.classes)) return;
  for (auto& [key, value] : classifier.options)
    if (key == "units") value = fmt::format("{}", options_.classes);
  layers_.check(layer);
}

ImportedNetwork Importer::network() {
  std::vector<std::string> others;
  for (const Value& output : model_.outputs)
    if (output.name != output_) others.push_back("'" + shown(output.name) + "'");
  if (!others.empty())
    note(fmt::format("left out: the output{} {}", others.size() == 1 ? "" : "s", join(others, ", ", " and ")));
  find_needed(model_.nodes);
  for (const Node& node : nodes_) convert(node);
  layers_.simplify(output_layer());
  layers_.finish();
  const int last = layers_.size() - 1;
  const std::string units = layers_[last].option("units") ? *layers_[last].option("units") : "";
  leave_out_classifier(last);
  const bool other = options_.classes > 0 && units != *layers_[last].option("units");
  ImportedNetwork network{.notes = std::move(notes_)};
  for (int i = 0; i < layers_.size(); ++i)
    for (auto& [name, tensor] : layers_[i].tensors) {
      const std::string full = layers_[i].name + "/" + name;
      if (other && i == last)
        network.left_out.push_back(full);
      else
        network.weights.tensors.emplace(full, std::move(tensor));
    }
  const std::string input = to_string(layers_.shape(kInput));
  network.yaml = fmt::format("input: [{}]\nlayers:\n{}", input.substr(1, input.size() - 2), layers_text(layers_));
  return network;
}

ImportedNetwork import_model(const Model& model, const ImportOptions& options) {
  try {
    return Importer(model, options).network();
  } catch (const ShapeError& error) {
    throw DataError(error.what());
  } catch (const ConfigError& error) {
    throw DataError(error.what());
  }
}

}  // namespace bantam::onnx
