// Layer by layer: what must cross memory, and what must be multiplied.
#include "bantam/engine/plan/step_floor.h"

#include <algorithm>
#include <vector>

namespace bantam {
namespace {

/// Elements of a layer's output that memory must have: after the layers that follow at once and can run in the same
/// pass.
std::int64_t written_elements(const Graph& graph, NodeId node) {
  std::int64_t least = graph.node(node).output.elements();
  for (NodeId reader = graph.only_reader(node); reader != 0; reader = graph.only_reader(reader)) {
    const GraphNode& next = graph.node(reader);
    const std::vector<Shape> inputs = graph.input_shapes(reader);
    if (inputs.size() != 1 || !next.layer->cheap(inputs) || next.layer->uses_batch_statistics()) break;
    least = std::min(least, next.output.elements());
  }
  return least;
}

}  // namespace

StepWork least_step_work(const Graph& graph, std::int64_t batch, Precision precision, std::int64_t parameters,
                         int moments) {
  const auto element = static_cast<double>(size_of(precision.compute()));
  StepWork work;
  // Which values need a gradient: those that depend on a parameter.
  std::vector<bool> wants_gradient(graph.nodes().size(), false);
  for (NodeId node = 1; node <= graph.output(); ++node) {
    const GraphNode& description = graph.node(node);
    const std::vector<Shape> inputs = graph.input_shapes(node);
    const bool before = std::ranges::any_of(
        description.inputs, [&](NodeId input) { return wants_gradient[static_cast<std::size_t>(input)]; });
    const auto flops = static_cast<double>(description.layer->flops(inputs));
    wants_gradient[static_cast<std::size_t>(node)] = before || flops > 0;
    if (flops == 0) continue;
    const auto in = static_cast<double>(inputs[0].elements()), out = static_cast<double>(written_elements(graph, node));
    work.flops += flops * (before ? 3 : 2);
    work.bytes += (2 * in + 2 * out + (before ? in : 0)) * element;
  }
  work.flops *= static_cast<double>(batch);
  work.bytes *= static_cast<double>(batch);
  const double copy = precision.compute() == DType::float32 ? 0 : element;
  work.bytes += static_cast<double>(parameters) * (2 * 4 * (2 + moments) + copy);  // each is written, and read
  return work;
}

}  // namespace bantam
