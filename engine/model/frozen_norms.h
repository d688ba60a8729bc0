// Which batch norms and nodes of a graph do not train, and what else follows from groups of parameters for a graph as a
// whole.
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

/// Declares the layers' parameters and buffers, in the graph's order, without a model: no memory is allocated.
void declare_tensors(const Graph& graph, ParameterArena& parameters, BufferArena& buffers);

/// By node: whether its layer declares parameters that are not frozen for good. For whoever asks without a model.
std::vector<char> nodes_that_train(const Graph& graph, std::span<const ParameterGroup> groups);

/// By node: whether backward computes no gradient of its value: neither it nor anything that it is computed of trains.
/// True for the input.
std::vector<bool> nodes_without_gradient(const Graph& graph, const std::vector<char>& trains);

/// Names of all parameters that the graph's layers declare, in order.
std::vector<std::string> parameter_names(const Graph& graph);

}  // namespace bantam
