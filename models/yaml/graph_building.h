// Internal: a graph as it is read from a list, and the names that its nodes and blocks have.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "bantam/base/config/config.h"
#include "bantam/engine/graph/graph.h"

namespace bantam::models {

/// The name of what a list reads: the model's input, or its block's.
inline constexpr std::string_view kInputName = "input";

/// Adds up the weights of nodes, in order.
class WeightCount {
 public:
  /// Throws ShapeError where they become too many, or where a weight's shape cannot be counted.
  void add(const Graph& graph, NodeId node);

 private:
  std::int64_t weights_ = 0;
};

/// A line that a message on a shape gets where the model's input has the look of channels first, [3, 32, 32]; else "".
std::string channels_first_hint(const Shape& input);

/// The graph as it is read, and the names that its nodes and blocks have so far.
class GraphBuilding {
 public:
  explicit GraphBuilding(const Shape& input) : graph_(input) { reserve(std::string(kInputName)); }

  bool is_taken(const std::string& name) const { return taken_.contains(name); }
  /// A name, and those of the blocks that it is in.
  void reserve(const std::string& name);
  /// "conv2d", then "conv2d_2", …: no two nodes or blocks have one name. None is ever free again, so counting goes on
  /// where it stopped.
  std::string unused_name(const std::string& wanted);
  /// `at`: what to blame. Throws ConfigError there where the inputs do not fit.
  NodeId add(const std::string& name, LayerPtr layer, std::vector<NodeId> inputs, const ConfigNode& at);
  /// In a complete check of a file: a layer was wrong, so that nothing is known of the shapes after it. From now on
  /// `add` adds nothing and returns the model's input.
  void skip_rest() { skips_rest_ = true; }
  bool skips_rest() const { return skips_rest_; }
  /// Throws ConfigError at a layer whose output is lost: neither read nor `output`, the model's.
  void check_readers(NodeId output) const;

  const Graph& graph() const { return graph_; }
  Graph release_graph() { return std::move(graph_); }

 private:
  Graph graph_;
  bool skips_rest_ = false;
  std::vector<ConfigNode> places_;  // of nodes from 1 on
  WeightCount weights_;
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, int> numbers_;  // the last one returned for a wanted name
};

/// Outputs by the names that a list's entries have within it, then those of the lists around it.
class OutputNames {
 public:
  /// `outer` outlives it; null: the model's own list.
  OutputNames(const OutputNames* outer, NodeId input) : outer_(outer) { set(std::string(kInputName), input); }

  void set(const std::string& name, NodeId output) { outputs_[name] = output; }
  /// A name whose entry is not there.
  void leave_out(const std::string& name) { left_out_.insert(name); }
  /// Throws ConfigError at `at` where there is none.
  NodeId find(const std::string& name, const ConfigNode& at) const;

 private:
  [[noreturn]] void fail_unknown(const std::string& name, const ConfigNode& at) const;

  const OutputNames* outer_;
  std::unordered_map<std::string, NodeId> outputs_;
  std::unordered_set<std::string> left_out_;
};

}  // namespace bantam::models
