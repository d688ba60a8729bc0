// StepProgram: what a training step runs, decided before it runs: NodePlans in order of execution, by segment.
#pragma once

#include <vector>

#include "bantam/engine/program/node_plan.h"

namespace bantam {

/// Operations of which only the last value is read outside: a single operation, or a checkpoint segment, of which
/// backward keeps the inputs and recomputes the rest.
struct ProgramSegment {
  NodeId first = 1, last = 1;  ///< layers
  bool recompute = false;
  std::vector<NodeId> inputs;   ///< nodes outside the segment that it reads, each once, in order
  std::vector<NodePlan> nodes;  ///< in order of execution
};

/// The forward pass; backward runs it in reverse. A value.
struct StepProgram {
  std::vector<ProgramSegment> segments;

  /// The operation that stands for a layer; throws Error where there is none.
  const NodePlan& plan_of(NodeId node) const;
};

}  // namespace bantam
