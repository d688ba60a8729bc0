// Batch norms over the batches of all ranks, in place of those over each rank's own.
#pragma once

#include "bantam/engine/graph/graph.h"

namespace bantam {

/// The graph with each batch norm that is not frozen synchronised (synchronised_batch_norm): the same names and
/// parameters.
Graph with_synchronised_norms(const Graph& graph);
/// Whether it has one.
bool has_synchronised_norms(const Graph& graph);

}  // namespace bantam
