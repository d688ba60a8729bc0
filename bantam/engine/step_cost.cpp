// The roofline: arithmetic against traffic.
#include "bantam/engine/step_cost.h"

#include <algorithm>
#include <numeric>

namespace bantam {
namespace {

constexpr double kPasses = 3;  // forward, and a backward of two: by inputs and by weights

double node_traffic(const Graph& graph, const GraphNode& node, std::int64_t batch, std::size_t element) {
  std::int64_t elements = node.output.elements();
  for (const NodeId input : node.inputs) elements += graph.nodes()[static_cast<std::size_t>(input)].output.elements();
  return static_cast<double>(elements * batch) * static_cast<double>(element);
}

}  // namespace

DeviceRates typical_rates(Device device, Precision precision) {
  if (device.kind == DeviceKind::cpu) return {.bytes_per_s = 4e10, .flops_per_s = 3e11};
  const bool half = precision.kind != PrecisionKind::float32;
  return {.bytes_per_s = 4.0e12, .flops_per_s = half ? 3e14 : 4.5e13};
}

StepCost predict_cost(const Graph& graph, std::int64_t batch, Precision precision, const DeviceRates& rates) {
  const std::size_t element = size_of(precision.compute());
  StepCost cost;
  for (const GraphNode& node : graph.nodes()) {
    if (node.layer == nullptr) {
      cost.forward.push_back(0);
      continue;
    }
    std::vector<Shape> inputs;
    for (const NodeId input : node.inputs) inputs.push_back(graph.nodes()[static_cast<std::size_t>(input)].output);
    const double flops = static_cast<double>(node.layer->flops(inputs) * batch);
    cost.forward.push_back(
        std::max(flops / rates.flops_per_s, node_traffic(graph, node, batch, element) / rates.bytes_per_s));
  }
  cost.step = kPasses * std::accumulate(cost.forward.begin(), cost.forward.end(), 0.0);
  return cost;
}

double extra_work(const Graph& graph, const RecomputeOptions& recompute, const StepCost& cost) {
  double seconds = 0;
  for (const LoweredSegment& segment : lower(graph, recompute))
    for (NodeId node = segment.first; segment.recompute && node <= segment.last; ++node)
      seconds += cost.forward[static_cast<std::size_t>(node)];
  return cost.step > 0 ? seconds / cost.step : 0;
}

}  // namespace bantam
