// The roofline: arithmetic against traffic.
#include "bantam/engine/step_cost.h"

#include <algorithm>
#include <numeric>

#include "bantam/memory/device_profile.h"

namespace bantam {
namespace {

constexpr double kPasses = 3;  // forward, and a backward of two: by inputs and by weights

std::vector<Shape> input_shapes(const Graph& graph, const GraphNode& node) {
  std::vector<Shape> shapes;
  for (const NodeId input : node.inputs) shapes.push_back(graph.nodes()[static_cast<std::size_t>(input)].output);
  return shapes;
}

/// Whether RecomputeOptions::derive makes this node's output again: one pass over inputs of its shape.
bool derived(const Graph& graph, const GraphNode& node) {
  if (node.layer == nullptr) return false;
  const std::vector<Shape> inputs = input_shapes(graph, node);
  return node.layer->cheap(inputs) && std::ranges::all_of(inputs, [&](const Shape& in) { return in == node.output; });
}

}  // namespace

DeviceRates typical_rates(Device device, Precision precision) {
  const DeviceProfile profile = profile_of(device);
  return {.bytes_per_s = profile.copy_bytes_per_s, .flops_per_s = profile.flops_per_s(precision.compute())};
}

StepCost predict_cost(const Graph& graph, std::int64_t batch, Precision precision, const DeviceRates& rates) {
  const auto element = static_cast<double>(size_of(precision.compute()));
  StepCost cost;
  for (const GraphNode& node : graph.nodes()) {
    if (node.layer == nullptr) {
      cost.forward.push_back(0);
      continue;
    }
    const std::vector<Shape> inputs = input_shapes(graph, node);
    const double flops = static_cast<double>(node.layer->flops(inputs) * batch),
                 bytes = static_cast<double>(node.layer->traffic(inputs) * batch) * element;
    cost.forward.push_back(std::max(flops / rates.flops_per_s, bytes / rates.bytes_per_s));
  }
  cost.step = kPasses * std::accumulate(cost.forward.begin(), cost.forward.end(), 0.0);
  return cost;
}

double extra_work(const Graph& graph, const RecomputeOptions& recompute, const StepCost& cost) {
  double seconds = 0;
  for (const LoweredSegment& segment : lower(graph, recompute))
    for (NodeId node = segment.first; segment.recompute && node <= segment.last; ++node)
      seconds += cost.forward[static_cast<std::size_t>(node)];
  for (std::size_t node = 0; recompute.derives() && node < cost.forward.size(); ++node)
    if (derived(graph, graph.nodes()[node])) seconds += cost.forward[node];
  return cost.step > 0 ? seconds / cost.step : 0;
}

}  // namespace bantam
