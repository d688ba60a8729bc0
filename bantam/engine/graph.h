// Graph: a model as a static graph of named nodes, and its lowering to what runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bantam/engine/layer.h"

namespace bantam {

/// Index of a node; 0 is the input.
using NodeId = int;

struct GraphNode {
  std::string name;  ///< unique; "block1/conv2" belongs to block "block1"
  LayerPtr layer;    ///< null for the input
  std::vector<NodeId> inputs;
  Shape output;  ///< without the batch axis
};

/// Nodes in topological order. Shapes are checked as nodes are added. The last node is the output.
class Graph {
 public:
  /// `input`: a sample's shape, (height, width, channels) for images.
  explicit Graph(Shape input);

  NodeId input() const { return 0; }
  NodeId output() const { return static_cast<NodeId>(nodes_.size()) - 1; }
  /// An empty name gives "<kind>", then "<kind>_2", … . Throws ConfigError for a name taken, ShapeError (with the
  /// node's name) where inputs do not fit.
  NodeId add(std::string name, LayerPtr layer, std::vector<NodeId> inputs);
  /// Behind the last node: a chain, as Keras' Sequential.
  NodeId add(LayerPtr layer) { return add("", std::move(layer), {output()}); }
  NodeId add(std::string name, LayerPtr layer) { return add(std::move(name), std::move(layer), {output()}); }

  const std::vector<GraphNode>& nodes() const { return nodes_; }
  const Shape& input_shape() const { return nodes_.front().output; }
  const Shape& output_shape() const { return nodes_.back().output; }

 private:
  std::vector<GraphNode> nodes_;
};

/// What backward makes again instead of keeping it.
struct RecomputeOptions {
  enum class Kind : std::uint8_t { none, all, named } kind = Kind::none;
  /// named: nodes, blocks (the part of a node's name before a "/"), or stretches "first..last" from one of these to
  /// another, in the graph's order.
  std::vector<std::string> names;
  /// Tensors that one pass over a kept one gives (normalised, activated, summed) are not kept either; no convolution
  /// and no matrix product runs again for them. `all` includes it.
  bool derive = false;

  bool derives() const { return derive || kind == Kind::all; }
};

/// A run of nodes [first, last] that is one unit of execution: a single node, or a stretch run again in backward. What
/// crosses its end is one value (the last node's).
struct LoweredSegment {
  NodeId first = 1, last = 1;
  bool recompute = false;
  std::vector<NodeId> inputs;  ///< nodes outside the segment that it reads
};

/// Decides, before anything runs, how the graph is executed: one segment a node, and one for each recomputed stretch.
/// `all` recomputes every block and every layer outside blocks; a block is recomputed as a whole where one value leaves
/// it. A name inside another's stretch adds nothing. Throws ConfigError for a name that is neither node nor block (with
/// the nearest), for a stretch that more than one value leaves or that ends before it begins, and for two stretches of
/// which each has a part of its own.
std::vector<LoweredSegment> lower(const Graph& graph, const RecomputeOptions& recompute);

}  // namespace bantam
