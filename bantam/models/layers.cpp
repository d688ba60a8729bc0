// Walks the YAML list and adds nodes to a graph; what the graph refuses is reported at the layer's place in the file.
#include "bantam/models/layers.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/layers.h"
#include "bantam/models/layer_kinds.h"
#include "bantam/models/layer_options.h"
#include "bantam/models/zoo.h"

namespace bantam::models {
namespace {

/// Where the next node goes: behind `last`, its name behind `prefix`.
struct Place {
  std::string prefix;  ///< "" or "block1/"
  NodeId last = 0;
};

bool name_taken(const Graph& graph, const std::string& name) {
  return std::ranges::any_of(
      graph.nodes(), [&](const GraphNode& node) { return node.name == name || node.name.starts_with(name + "/"); });
}

/// "conv2d", then "conv2d_2", …: no two nodes or blocks have one name.
std::string unused_name(const Graph& graph, const std::string& wanted) {
  std::string name = wanted;
  for (int i = 2; name_taken(graph, name); ++i) name = fmt::format("{}_{}", wanted, i);
  return name;
}

std::string read_name(const Graph& graph, ConfigMap& options, const std::string& prefix, const std::string& kind) {
  const auto given = options.find("name");
  if (!given) return unused_name(graph, prefix + kind);
  const std::string name = given->as_text();
  const auto allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.'; };
  if (name.empty() || !std::ranges::all_of(name, allowed))
    given->fail(fmt::format("a name is made of letters, digits, '_', '-' and '.', got '{}'", name));
  if (name_taken(graph, prefix + name)) given->fail(fmt::format("the name '{}' is taken", prefix + name));
  return prefix + name;
}

NodeId add_node(Graph& graph, std::string name, LayerPtr layer, std::vector<NodeId> inputs, const ConfigNode& at) {
  try {
    return graph.add(std::move(name), std::move(layer), std::move(inputs));
  } catch (const ShapeError& error) {
    at.fail_at_key(error.what());
  } catch (const ConfigError& error) {
    at.fail_at_key(error.what());
  }
}

NodeId read_layer(Graph& graph, const ConfigNode& item, const Place& place);

/// A list of plain layers inside a block; gives the last node.
NodeId read_body(Graph& graph, const ConfigNode& list, Place place) {
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

NodeId read_block(Graph& graph, ConfigMap& options, const Place& place) {
  const std::string name = read_name(graph, options, place.prefix, "block");
  const NodeId last = read_body(graph, options.node("body"), {name + "/", place.last});
  options.finish();
  return last;
}

NodeId read_residual(Graph& graph, ConfigMap& options, const Place& place) {
  const std::string name = read_name(graph, options, place.prefix, "residual");
  const NodeId body = read_body(graph, options.node("body"), {name + "/", place.last});
  NodeId shortcut = place.last;
  if (const auto list = options.find("shortcut")) shortcut = read_body(graph, *list, {name + "/shortcut_", place.last});
  const ActivationOptions activation = read_activation(options);
  options.finish();
  return add_node(graph, unused_name(graph, name + "/add"), add(activation), {body, shortcut}, options.self());
}

NodeId read_layer(Graph& graph, const ConfigNode& item, const Place& place) {
  const ConfigNode::Named named = item.as_named();
  const LayerKind* kind = find_layer_kind(named.name);
  const bool is_residual = named.name == "residual";
  if (!kind && !is_residual && named.name != "block") {
    std::vector<std::string> names = layer_kind_names();
    names.insert(names.end(), {"residual", "block"});
    named.options.fail_unknown("layer", named.name, names);
  }
  ConfigMap options = named.options.as_map();
  if (!kind) return is_residual ? read_residual(graph, options, place) : read_block(graph, options, place);
  std::string name = read_name(graph, options, place.prefix, named.name);
  LayerPtr layer = kind->read(options);
  options.finish();
  return add_node(graph, std::move(name), std::move(layer), {place.last}, named.options);
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
  std::string name = options.text("name", default_name);
  const ConfigNode input = options.node("input");
  Graph graph(read_shape(input));
  const ConfigNode list = options.node("layers");
  const std::vector<ConfigNode> items = list.items();
  options.finish();
  if (items.empty()) list.fail_at_key("a model needs at least one layer");
  Place place;
  for (const ConfigNode& item : items) place.last = read_layer(graph, item, place);
  return {std::move(name), std::move(graph), input, items.back().as_named().options};
}

ModelSpec read_zoo(ConfigMap& options) {
  const ConfigNode at = options.node("zoo");
  const ZooModel* model = find_zoo_model(at.as_text());
  if (!model) at.fail_unknown("zoo model", at.as_text(), zoo_names());
  ZooOptions zoo = model->defaults;
  zoo.classes = options.integer("classes", {.min = 1, .max = 1 << 24}, zoo.classes);
  if (model->has_width) zoo.width = options.number("width", {.min = 0, .max = 64, .min_open = true}, zoo.width);
  const auto extents = zoo.input.extents();
  (void)options.integers("input", {.min = 1, .max = 1 << 20}, {extents.begin(), extents.end()});
  const ConfigNode input = options.node("input");
  zoo.input = read_shape(input);
  std::string name = options.text("name", model->name);
  options.finish();
  try {
    return {std::move(name), model->build(zoo), input, at};
  } catch (const ShapeError& error) {
    input.fail(error.what());
  }
}

}  // namespace

ModelSpec read_model(const ConfigNode& model, const std::string& default_name) {
  ConfigMap options = model.as_map();
  return options.has("zoo") ? read_zoo(options) : read_list(options, default_name);
}

}  // namespace bantam::models
