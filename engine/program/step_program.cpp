// Looking up the operation of a layer.
#include "bantam/engine/program/step_program.h"

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam {

const NodePlan& StepProgram::plan_of(NodeId node) const {
  for (const ProgramSegment& segment : segments)
    for (const NodePlan& plan : segment.nodes)
      if (plan.first <= node && node <= plan.last) return plan;
  throw Error(fmt::format("step program: no operation stands for node {}", node));
}

}  // namespace bantam
