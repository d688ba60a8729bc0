// Graph: a model as a static graph of named nodes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/engine/layers/layer.h"

BANTAM_API_BEGIN
namespace bantam {

/// Index of a node; 0 is the input.
using NodeId = int;

/// A layer of a graph, and what it reads.
struct GraphNode {
  std::string name;  ///< unique; "block1/conv2" belongs to block "block1"
  LayerPtr layer;    ///< null for the input
  std::vector<NodeId> inputs;
  Shape output;  ///< without the batch axis
};

/// "block1/conv2" → "block1"; a name without a block is its own.
std::string block_of(const std::string& name);

/// Nodes in topological order. Shapes are checked as nodes are added. The last node is the output.
class Graph {
 public:
  /// `input`: a sample's shape, (height, width, channels) for images.
  explicit Graph(Shape input);

  NodeId input() const { return 0; }
  NodeId output() const { return static_cast<NodeId>(nodes_.size()) - 1; }
  /// An empty name becomes "<kind>", then "<kind>_2", … . Throws ConfigError for a name in use, ShapeError (with the
  /// node's name) where inputs do not fit.
  NodeId add(std::string name, LayerPtr layer, std::vector<NodeId> inputs);
  /// After the last node: a chain, as Keras' Sequential.
  NodeId add(LayerPtr layer) { return add("", std::move(layer), {output()}); }
  NodeId add(std::string name, LayerPtr layer) { return add(std::move(name), std::move(layer), {output()}); }

  const std::vector<GraphNode>& nodes() const { return nodes_; }
  const GraphNode& node(NodeId node) const { return nodes_[static_cast<std::size_t>(node)]; }
  const Shape& input_shape() const { return nodes_.front().output; }
  const Shape& output_shape() const { return nodes_.back().output; }
  /// Shapes of the node's inputs, without the batch axis.
  std::vector<Shape> input_shapes(NodeId node) const;
  /// The only node that reads `node`, and does so once; 0 where there is none such.
  NodeId only_reader(NodeId node) const;
  /// The first node whose layer does not support meta devices (Layer::supports_meta); 0 where all do.
  NodeId first_without_meta() const;
  /// "layer 'scale' (my_scale)": for messages.
  std::string describe(NodeId node) const;

 private:
  static constexpr NodeId kSeveralReaders = -1;

  std::string unused_name(const std::string& kind);

  std::vector<GraphNode> nodes_;
  std::vector<NodeId> only_readers_;                      // of each node: only_reader, or kSeveralReaders
  std::unordered_set<std::string> names_;                 // of all nodes
  std::unordered_map<std::string, int> numbers_of_kind_;  // the last number given to nodes without a name
};

}  // namespace bantam
BANTAM_API_END
