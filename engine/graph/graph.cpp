// Building graphs.
#include "bantam/engine/graph/graph.h"

#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/layers/layers.h"

namespace bantam {

namespace {

/// Throws ConfigError where a layer with `whiten` reads anything but the images, whose statistics alone are known.
void check_whitening(const std::string& name, const Layer& layer, const std::vector<NodeId>& inputs) {
  const Conv2dOptions* const conv = layer.options<Conv2dOptions>();
  if (conv == nullptr || !conv->whiten || inputs == std::vector<NodeId>{0}) return;
  throw ConfigError(
      fmt::format("layer '{}': whiten is for a layer that reads the model's images directly; this one reads another "
                  "layer",
                  name));
}

}  // namespace

std::string block_of(const std::string& name) { return name.substr(0, name.find('/')); }

Graph::Graph(Shape input) {
  nodes_.push_back({.name = "input", .output = input});
  only_readers_.push_back(0);
  names_.insert("input");
}

/// The kind, else with the first number that is free. No name is ever free again, so counting continues where it
/// stopped.
std::string Graph::unused_name(const std::string& kind) {
  std::string name = kind;
  int& number = numbers_of_kind_.try_emplace(kind, 1).first->second;
  while (names_.contains(name)) name = fmt::format("{}_{}", kind, ++number);
  return name;
}

NodeId Graph::add(std::string name, LayerPtr layer, std::vector<NodeId> inputs) {
  if (layer == nullptr) throw ConfigError(fmt::format("layer '{}': expected a layer, got null", name));
  if (name.empty()) name = unused_name(std::string(layer->kind()));
  if (names_.contains(name)) throw ConfigError(fmt::format("two layers are named '{}'", name));
  std::vector<Shape> shapes;
  for (const NodeId input : inputs) {
    if (input < 0 || input > output()) throw ShapeError(fmt::format("layer '{}': there is no node {}", name, input));
    shapes.push_back(this->node(input).output);
  }
  Shape out;
  try {
    out = layer->output_shape(shapes);
  } catch (const ShapeError& error) {
    throw ShapeError(fmt::format("layer '{}': {}", name, error.what()));
  }
  check_whitening(name, *layer, inputs);
  names_.insert(name);
  for (const NodeId input : inputs) {
    NodeId& reader = only_readers_[static_cast<std::size_t>(input)];
    reader = reader == 0 ? output() + 1 : kSeveralReaders;
  }
  nodes_.push_back({std::move(name), std::move(layer), std::move(inputs), out});
  only_readers_.push_back(0);
  return output();
}

std::vector<Shape> Graph::input_shapes(NodeId node) const {
  std::vector<Shape> shapes;
  for (const NodeId input : this->node(node).inputs) shapes.push_back(this->node(input).output);
  return shapes;
}

NodeId Graph::only_reader(NodeId node) const {
  return std::max<NodeId>(only_readers_[static_cast<std::size_t>(node)], 0);
}

NodeId Graph::first_without_meta() const {
  for (NodeId node = 1; node <= output(); ++node)
    if (!this->node(node).layer->supports_meta()) return node;
  return 0;
}

std::string Graph::describe(NodeId node) const {
  const GraphNode& description = this->node(node);
  return fmt::format("layer '{}' ({})", description.name, description.layer ? description.layer->kind() : "input");
}

}  // namespace bantam
