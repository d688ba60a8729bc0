// lower: from a graph to the StepProgram that runs it.
#pragma once

#include <span>

#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/program/recompute_options.h"
#include "bantam/engine/program/step_program.h"

namespace bantam {

/// Decides, before anything runs, how the graph is executed, for given fusions: a segment for each operation, and one
/// for each checkpoint segment. A checkpoint segment that would cut a fusion includes all of it, so that recompute
/// changes no bit; it ends before a fusion that computes the loss, which is a segment of its own. `all` recomputes
/// every block, as a whole where only one of its values is read outside, and every layer outside blocks that is not
/// cheap. A name inside another's segment adds nothing. Norms are deferred within a checkpoint segment, and among
/// operations that run once. Throws ConfigError for a name that is neither node nor block (with the nearest), for a
/// segment of which more than one value is read outside, or that ends before it begins, and for two that overlap.
StepProgram lower(const Graph& graph, const RecomputeOptions& recompute, std::span<const Fusion> fusions = {});

/// The program of a model for a device: with the fusions there are (where `fusion`), and batch statistics computed by
/// the convolutions before norms. A pure function of its arguments.
StepProgram lower(const Graph& graph, const RecomputeOptions& recompute, bool fusion, const FusionTarget& target);

}  // namespace bantam
