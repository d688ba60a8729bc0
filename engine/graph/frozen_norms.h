// Which batch norms of a graph do not train, and what follows from groups of parameters for a graph as a whole.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bantam/engine/autograd/parameters.h"
#include "bantam/engine/graph/graph.h"

namespace bantam {

/// The graph in which batch norms whose scale and shift are frozen for good are frozen (BatchNormOptions::frozen). They
/// run as they stand: chains that are fused with norms are of norms over the batch.
Graph with_frozen_norms(const Graph& graph, std::span<const ParameterGroup> groups);

/// What the graph's layers declare, in order, for whoever asks without a model: no memory is allocated.
void declare_tensors(const Graph& graph, ParameterArena& parameters, BufferArena& buffers);

/// Names of all parameters that the graph's layers declare, in order.
std::vector<std::string> parameter_names(const Graph& graph);

}  // namespace bantam
