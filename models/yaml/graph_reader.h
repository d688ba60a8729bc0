// Internal: a list of layers and blocks read into a graph.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bantam/base/config/config.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/models/yaml/blocks.h"

namespace bantam::models {

/// Names that no named block may have: the kinds of layers and of blocks.
std::vector<std::string> reserved_block_names();

/// In a description (`bantam schema`): the list's entries are layers and blocks. Else nothing happens.
void describe_network(const ConfigNode& list);

/// Throws ShapeError where the weights of all nodes are too many.
void check_weights(const Graph& graph);

struct ReadGraph {
  Graph graph;
  ConfigNode last;  ///< the options of the list's last entry, which makes the output
};

/// Throws ConfigError at the entry, and at its use where it belongs to a named block.
ReadGraph read_graph(const ConfigNode& list, const Shape& input, const BlockTable& blocks);

}  // namespace bantam::models
