// Graph: a model as a static graph of named nodes, and its lowering to what runs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "bantam/engine/graph/fusion.h"
#include "bantam/engine/layers/layer.h"

namespace bantam {

/// Index of a node; 0 is the input.
using NodeId = int;

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
  /// An empty name gives "<kind>", then "<kind>_2", … . Throws ConfigError for a name taken, ShapeError (with the
  /// node's name) where inputs do not fit.
  NodeId add(std::string name, LayerPtr layer, std::vector<NodeId> inputs);
  /// Behind the last node: a chain, as Keras' Sequential.
  NodeId add(LayerPtr layer) { return add("", std::move(layer), {output()}); }
  NodeId add(std::string name, LayerPtr layer) { return add(std::move(name), std::move(layer), {output()}); }

  const std::vector<GraphNode>& nodes() const { return nodes_; }
  const GraphNode& node(NodeId node) const { return nodes_[static_cast<std::size_t>(node)]; }
  const Shape& input_shape() const { return nodes_.front().output; }
  const Shape& output_shape() const { return nodes_.back().output; }
  /// What the node's layer is given, without the batch axis.
  std::vector<Shape> input_shapes(NodeId node) const;
  /// The only node that reads `node`, and does so once; 0 where there is none such.
  NodeId only_reader(NodeId node) const;
  /// The first node whose layer does not support meta devices (Layer::supports_meta); 0 where all do.
  NodeId first_without_meta() const;
  /// "layer 'scale' (my_scale)": for messages.
  std::string describe(NodeId node) const;

 private:
  std::string unused_name(const std::string& kind);

  std::vector<GraphNode> nodes_;
  std::unordered_set<std::string> names_;                 // of all nodes
  std::unordered_map<std::string, int> numbers_of_kind_;  // the last number given to nodes without a name
};

/// What backward makes again instead of keeping it.
struct RecomputeOptions {
  enum class Kind : std::uint8_t { none, all, named } kind = Kind::none;
  /// named: nodes, blocks (the part of a node's name before a "/"), or stretches "first..last" from one of these to
  /// another, in the graph's order.
  std::vector<std::string> names;
  /// Tensors that one pass over kept ones gives (normalised, activated, summed) are not kept either; no convolution and
  /// no matrix product runs again for them. `all` includes `cheap`.
  Derive derive = Derive::none;
  /// named: a stretch that runs again keeps all that it makes as long as it is there, `derive` or not: less work, more
  /// bytes while it runs.
  bool whole = false;

  Derive derives() const { return kind == Kind::all ? Derive::cheap : derive; }
  /// Within stretches that run again.
  Derive derives_again() const { return whole ? Derive::none : derives(); }
};

/// A run of nodes [first, last] that is one unit of execution: a single node, a fusion, or a stretch run again in
/// backward. What crosses its end is one value (the last node's).
struct LoweredSegment {
  NodeId first = 1, last = 1;
  bool recompute = false;
  std::vector<NodeId> inputs;  ///< nodes outside the segment that it reads
  /// Batch norms of the segment, alone or at the end of a fusion, that are applied by their only reader as it reads:
  /// a sum, or a pointwise convolution (pending_norm.h).
  std::vector<NodeId> deferred;
  std::vector<Fusion> fusions;  ///< within the segment, in order
};

/// Decides, before anything runs, how the graph is executed: one segment a node or fusion, and one for each recomputed
/// stretch. A stretch that would cut a fusion takes all of it in, so that recompute changes no bit; it ends before one
/// that makes the loss, which is a segment of its own.
/// `all` recomputes every block, as a whole where one value leaves it, and every layer outside blocks that is not
/// cheap. A name inside another's stretch adds nothing. Norms are deferred to sums within a stretch that runs again,
/// and among nodes that do not. Throws ConfigError for a name that is neither node nor block (with the nearest), for a
/// stretch that more than one value leaves or that ends before it begins, and for two stretches of which each has a
/// part of its own.
std::vector<LoweredSegment> lower(const Graph& graph, const RecomputeOptions& recompute,
                                  std::span<const Fusion> fusions = {});

}  // namespace bantam
