// Walks the YAML list and adds nodes to a graph; what the graph refuses is reported at the layer's place in the file.
#include "bantam/models/yaml/network.h"

#include <algorithm>
#include <cctype>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/models/yaml/layer_options.h"
#include "bantam/models/yaml/model_weights.h"
#include "bantam/models/zoo/zoo.h"

namespace bantam::models {
namespace {

constexpr std::string_view kModelName = "name", kModelNameMeaning = "The model's name in reports.";
constexpr std::string_view kInputMeaning =
    "Shape of a sample as the pipeline delivers it: [height, width, channels], or [features].";
const ConfigKey kZoo{"zoo", "Name of a well-known network, in place of `input` and `layers`.",
                     "separable_cnn | resnet18_cifar", "a network of `layers`"};

/// Where the next node goes: its input is `last`, its name begins with `prefix`.
struct Place {
  std::string prefix;  ///< "" or "block1/"
  NodeId last = 0;
};

/// Float32 weights and gradients of more need more than 128 GiB; tables of the host grow with them too.
constexpr std::int64_t kMostWeights = std::int64_t{1} << 34;

/// Of one node. Throws ShapeError where a weight's shape cannot be counted.
std::int64_t weights_of(const Graph& graph, NodeId node) {
  const GraphNode& added = graph.node(node);
  ParameterArena parameters;
  BufferArena buffers;
  LayerScope scope(added.name, parameters, buffers);
  (void)added.layer->bind(scope, buffers, graph.input_shapes(node));
  return parameters.parameter_count();
}

/// Adds a node's weights to those before it. Throws ShapeError where they become too many.
void add_weights(const Graph& graph, NodeId node, std::int64_t& weights) {
  const std::int64_t more = weights_of(graph, node);
  if (more > kMostWeights - weights)
    throw ShapeError(fmt::format("layer '{}': {} weights are too many: a model has at most {}", graph.node(node).name,
                                 format_count(more), format_count(kMostWeights)));
  weights += more;
}

/// The graph as it is read, and the names that its nodes and blocks have so far.
class Building {
 public:
  explicit Building(Shape input) : graph_(std::move(input)) { take("input"); }

  bool is_taken(const std::string& name) const { return taken_.contains(name); }

  /// "conv2d", then "conv2d_2", …: no two nodes or blocks have one name. None is ever free again, so counting goes on
  /// where it stopped.
  std::string unused_name(const std::string& wanted) {
    std::string name = wanted;
    int& number = numbers_.try_emplace(wanted, 1).first->second;
    while (is_taken(name)) name = fmt::format("{}_{}", wanted, ++number);
    return name;
  }

  NodeId add(const std::string& name, LayerPtr layer, std::vector<NodeId> inputs) {
    const NodeId node = graph_.add(name, std::move(layer), std::move(inputs));
    add_weights(graph_, node, weights_);
    take(name);
    return node;
  }

  Graph take_graph() { return std::move(graph_); }

 private:
  /// A node's name, and those of the blocks that it is in.
  void take(const std::string& name) {
    taken_.insert(name);
    for (std::size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1))
      taken_.insert(name.substr(0, slash));
  }

  Graph graph_;
  std::int64_t weights_ = 0;
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, int> numbers_;  // the last one given for a wanted name
};

std::string read_name(Building& graph, ConfigMap& options, const std::string& prefix, const std::string& kind) {
  const auto given = options.find(
      {"name",
       "The layer's or block's name in reports, in saved weights and in `recompute`: letters, digits, _, - and ., "
       "unique in the model.",
       "", "the kind, with a number from the second on: conv2d, conv2d_2"});
  if (!given) return graph.unused_name(prefix + kind);
  const std::string name = given->as_text();
  const auto allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.'; };
  if (name.empty() || !std::ranges::all_of(name, allowed))
    given->fail(fmt::format("a name is made of letters, digits, '_', '-' and '.', got '{}'", name));
  if (graph.is_taken(prefix + name)) given->fail(fmt::format("the name '{}' is taken", prefix + name));
  return prefix + name;
}

NodeId add_node(Building& graph, const std::string& name, LayerPtr layer, std::vector<NodeId> inputs,
                const ConfigNode& at) {
  try {
    return graph.add(name, std::move(layer), std::move(inputs));
  } catch (const ShapeError& error) {
    at.fail_at_key(error.what());
  } catch (const ConfigError& error) {
    at.fail_at_key(error.what());
  }
}

NodeId read_layer(Building& graph, const ConfigNode& item, const Place& place);

/// Where a description reads layers by themselves.
const Shape kExampleInput{56, 56, 64};

/// A list of layers that are no blocks.
void describe_layers(const ConfigNode& list) {
  list.describe_entries("layer", layer_kinds().names(), [](const std::string& kind, const ConfigNode& value) {
    Building graph(kExampleInput);
    ConfigMap options = value.as_map();
    (void)read_name(graph, options, "", kind);
    (void)layer_kinds().at(kind)(options);
    options.finish();
  });
}

/// A list of plain layers inside a block; returns the last node.
NodeId read_body(Building& graph, const ConfigNode& list, Place place) {
  describe_layers(list);
  const std::vector<ConfigNode> items = list.items();
  if (items.empty()) list.fail_at_key("a block's list of layers is empty");
  for (const ConfigNode& item : items) {
    const ConfigNode::Named named = item.as_named();
    if (named.name == "residual" || named.name == "block")
      named.options.fail_at_key("a block cannot hold another block: write the blocks one after the other");
    place.last = read_layer(graph, item, place);
  }
  return place.last;
}

NodeId read_block(Building& graph, ConfigMap& options, const Place& place) {
  options.describe(
      "A chain of layers under one name: one unit of recompute, and a prefix of its layers' names.",
      "block:\n  name: head\n  body:\n    - dense: {units: 64, activation: relu}\n    - dense: {units: 10}");
  const std::string name = read_name(graph, options, place.prefix, "block");
  const NodeId last =
      read_body(graph, options.node({"body", "The layers, one after the other; blocks do not hold blocks.", "[relu]"}),
                {name + "/", place.last});
  options.finish();
  return last;
}

NodeId read_residual(Building& graph, ConfigMap& options, const Place& place) {
  options.describe(
      "A residual block: activation(body(x) + shortcut(x)).",
      "residual:\n  body:\n    - conv2d: {filters: 64, kernel: 3, padding: same, bias: false}\n    - batch_norm\n"
      "  shortcut:\n    - conv2d: {filters: 64, kernel: 1, bias: false}\n    - batch_norm\n  activation: relu");
  const std::string name = read_name(graph, options, place.prefix, "residual");
  const NodeId body = read_body(
      graph, options.node({"body", "The layers of the sum's first part, one after the other; no blocks.", "[relu]"}),
      {name + "/", place.last});
  NodeId shortcut = place.last;
  if (const auto list = options.find(
          {"shortcut",
           "The layers of the sum's second part, such as a 1 × 1 convolution where the body changes the shape.",
           "[relu]", "the block's input as it is"}))
    shortcut = read_body(graph, *list, {name + "/shortcut_", place.last});
  const ActivationOptions activation = read_activation(options);
  options.finish();
  return add_node(graph, graph.unused_name(name + "/add"), add(activation), {body, shortcut}, options.self());
}

/// A list of layers and blocks.
void describe_network(const ConfigNode& list) {
  if (!list.is_described()) return;
  describe_layers(list);
  const std::vector<std::string> kinds = {"residual", "block"};
  list.describe_entries("block", kinds, [](const std::string& kind, const ConfigNode& value) {
    Building graph(kind == "block" ? Shape{64} : kExampleInput);
    ConfigMap options = value.as_map();
    (void)(kind == "block" ? read_block(graph, options, {}) : read_residual(graph, options, {}));
  });
}

NodeId read_layer(Building& graph, const ConfigNode& item, const Place& place) {
  const ConfigNode::Named named = item.as_named();
  const bool is_residual = named.name == "residual", is_block = named.name == "block";
  const Reader<LayerPtr>* read = layer_kinds().find(named.name);
  if (!read && !is_residual && !is_block) {
    std::vector<std::string> names = layer_kinds().names();
    names.insert(names.end(), {"residual", "block"});
    named.options.fail_unknown("layer", named.name, names);
  }
  ConfigMap options = named.options.as_map();
  if (is_residual) return read_residual(graph, options, place);
  if (is_block) return read_block(graph, options, place);
  const std::string name = read_name(graph, options, place.prefix, named.name);
  LayerPtr layer = (*read)(options);
  options.finish();
  return add_node(graph, name, std::move(layer), {place.last}, named.options);
}

Shape read_shape(const ConfigNode& node) {
  const std::vector<std::int64_t> extents = node.as_integers({.min = 1, .max = 1 << 20});
  if (extents.size() != 1 && extents.size() != 3)
    node.fail(fmt::format("{}: expected [height, width, channels] or [features], got {} extents", node.path(),
                          extents.size()));
  try {
    return Shape(std::span<const std::int64_t>(extents));
  } catch (const ShapeError& error) {
    node.fail(error.what());
  }
}

ModelSpec read_list(ConfigMap& options, const std::string& default_name) {
  std::string name = options.text({kModelName, kModelNameMeaning, "", "the file's name"}, default_name);
  const ConfigNode input = options.node({"input", kInputMeaning, "[32, 32, 3] | [784]"});
  Building graph(read_shape(input));
  const ConfigNode list = options.node({"layers",
                                        "The layers and blocks, each a name or a name with its options; the output of "
                                        "one is the input of the next.",
                                        "[flatten, {dense: {units: 64, activation: relu}}, {dense: {units: 10}}]"});
  describe_network(list);
  const std::vector<ConfigNode> items = list.items();
  options.finish();
  if (items.empty()) list.fail_at_key("a model needs at least one layer");
  Place place;
  for (const ConfigNode& item : items) place.last = read_layer(graph, item, place);
  return {std::move(name), graph.take_graph(), input, items.back().as_named().options};
}

/// Always with the whole zoo: of resnet152 the nearest name is another network. One letter apart it is a slip.
[[noreturn]] void fail_unknown_model(const ConfigNode& at) {
  const std::string name = at.as_text();
  const std::vector<std::string> names = zoo_names();
  const auto near = nearest(name, names);
  at.fail_at_key(fmt::format("unknown zoo model '{}'{} the zoo has {}", shown(name),
                             near && edit_distance(name, *near) <= 1 ? fmt::format("; did you mean '{}'?", *near) : ";",
                             join(names, ", ", " and ")));
}

ZooOptions read_zoo_options(ConfigMap& options, const ZooModel& model) {
  ZooOptions zoo = model.defaults;
  zoo.classes = options.integer({"classes", "Values of the output: the classes of the data."},
                                {.min = 1, .max = 1 << 24}, zoo.classes);
  if (model.has_width)
    zoo.width = options.number({"width", "Factor of all layers' channels: 0.5 is half as wide.", "0.5"},
                               {.min = 0, .max = 64, .min_open = true}, zoo.width);
  const auto extents = zoo.input.extents();
  (void)options.integers({"input", kInputMeaning}, {.min = 1, .max = 1 << 20}, {extents.begin(), extents.end()});
  return zoo;
}

ModelSpec read_zoo(ConfigMap& options) {
  const ConfigNode at = options.node(kZoo);
  const ZooModel* model = find_zoo_model(at.as_text());
  if (!model) fail_unknown_model(at);
  ZooOptions zoo;
  options.read_choice("zoo", std::string(model->name), zoo_names(),
                      [&](const std::string& name) { zoo = read_zoo_options(options, *find_zoo_model(name)); });
  const ConfigNode input = options.node("input");
  zoo.input = read_shape(input);
  std::string name = options.text({kModelName, kModelNameMeaning, "", "the network's"}, model->name);
  options.finish();
  try {
    Graph graph = model->build(zoo);
    std::int64_t weights = 0;
    for (NodeId node = 1; node <= graph.output(); ++node) add_weights(graph, node, weights);
    return {std::move(name), std::move(graph), input, at};
  } catch (const ShapeError& error) {
    input.fail(error.what());
  }
}

}  // namespace

ModelSpec read_model(const ConfigNode& model, const std::string& default_name) {
  ConfigMap options = model.as_map();
  options.describe(
      "The network: a list of layers, or, with `zoo`, a well-known one.",
      "model:\n  input: [32, 32, 3]\n  layers:\n    - conv2d: {filters: 32, kernel: 3, padding: same, bias: false}\n"
      "    - batch_norm: {activation: relu}\n    - max_pool\n    - flatten\n    - dense: {units: 10}");
  std::optional<ModelWeights> weights = read_model_weights(options);
  ModelSpec spec = options.has(kZoo) ? read_zoo(options) : read_list(options, default_name);
  spec.weights = std::move(weights);
  return spec;
}

}  // namespace bantam::models
