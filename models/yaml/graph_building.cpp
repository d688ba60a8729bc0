// Names, weights and readers of nodes.
#include "bantam/models/yaml/graph_building.h"

#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam::models {
namespace {

/// Float32 weights and gradients of more need more than 128 GiB; tables of the host grow with them too.
constexpr std::int64_t kMostWeights = std::int64_t{1} << 34;

std::int64_t weights_of(const Graph& graph, NodeId node) {
  const GraphNode& added = graph.node(node);
  ParameterArena parameters;
  BufferArena buffers;
  LayerScope scope(added.name, parameters, buffers);
  (void)added.layer->bind(scope, buffers, graph.input_shapes(node));
  return parameters.parameter_count();
}

}  // namespace

void WeightCount::add(const Graph& graph, NodeId node) {
  const std::int64_t more = weights_of(graph, node);
  if (more > kMostWeights - weights_)
    throw ShapeError(fmt::format("layer '{}': {} weights are too many: a model has at most {}", graph.node(node).name,
                                 format_count(more), format_count(kMostWeights)));
  weights_ += more;
}

void GraphBuilding::reserve(const std::string& name) {
  taken_.insert(name);
  for (std::size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1))
    taken_.insert(name.substr(0, slash));
}

std::string channels_first_hint(const Shape& input) {
  constexpr std::int64_t kMostChannels = 4;
  if (input.rank() != 3 || input[0] > kMostChannels || input[1] <= kMostChannels || input[2] <= kMostChannels)
    return "";
  return fmt::format(
      "\n  (input: [{0}, {1}, {2}] looks like [channels, height, width]; it is [height, width, channels] here:\n"
      "  input: [{1}, {2}, {0}])",
      input[0], input[1], input[2]);
}

std::string GraphBuilding::unused_name(const std::string& wanted) {
  std::string name = wanted;
  int& number = numbers_.try_emplace(wanted, 1).first->second;
  while (is_taken(name)) name = fmt::format("{}_{}", wanted, ++number);
  return name;
}

NodeId GraphBuilding::add(const std::string& name, LayerPtr layer, std::vector<NodeId> inputs, const ConfigNode& at) {
  if (skips_rest_) return 0;
  try {
    const NodeId node = graph_.add(name, std::move(layer), std::move(inputs));
    weights_.add(graph_, node);
    reserve(name);
    places_.push_back(at);
    return node;
  } catch (const ShapeError& error) {
    at.fail_at_key(error.what() + channels_first_hint(graph_.input_shape()));
  } catch (const ConfigError& error) {
    at.fail_at_key(error.what());
  }
}

void GraphBuilding::check_readers(NodeId output) const {
  std::vector<bool> is_read(graph_.nodes().size(), false);
  for (const GraphNode& node : graph_.nodes())
    for (const NodeId input : node.inputs) is_read[static_cast<std::size_t>(input)] = true;
  for (NodeId node = 1; node <= graph_.output(); ++node)
    if (node != output && !is_read[static_cast<std::size_t>(node)])
      places_[static_cast<std::size_t>(node) - 1].fail_at_key(
          fmt::format("no layer reads the output of '{}', and the model's output is that of its last entry, '{}'",
                      graph_.node(node).name, graph_.node(output).name));
}

NodeId OutputNames::find(const std::string& name, const ConfigNode& at) const {
  for (const OutputNames* names = this; names != nullptr; names = names->outer_) {
    const auto found = names->outputs_.find(name);
    if (found != names->outputs_.end()) return found->second;
    if (names->left_out_.contains(name)) at.fail(fmt::format("'{}' is not there: its `when` is false", shown(name)));
  }
  fail_unknown(name, at);
}

void OutputNames::fail_unknown(const std::string& name, const ConfigNode& at) const {
  std::vector<std::string> known;
  for (const OutputNames* names = this; names != nullptr; names = names->outer_)
    for (const auto& [other, output] : names->outputs_) known.push_back(other);
  std::ranges::sort(known);
  constexpr std::size_t kMostShown = 12;
  std::string advice;
  if (const auto near = nearest(name, known))
    advice = fmt::format("; did you mean '{}'?", *near);
  else if (known.size() <= kMostShown)
    advice = fmt::format("; there are {}", join(known, ", ", " and "));
  at.fail(fmt::format("no layer or block before this one is named '{}'{}", shown(name), advice));
}

}  // namespace bantam::models
