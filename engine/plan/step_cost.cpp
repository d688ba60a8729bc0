// The roofline: arithmetic against traffic; and how often recipes make what they make.
#include "bantam/engine/plan/step_cost.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/graph/lower.h"
#include "bantam/engine/plan/step_floor.h"
#include "bantam/memory/device/device_profile.h"

namespace bantam {
namespace {

constexpr double kFlopsReached = 0.65;  // what a network's convolutions reach of the best matrix product's rate
constexpr double kBackward = 1.55;      // of a forward's time: two products for each, and norms that read twice
constexpr double kAgain = 1.2;          // of what the roofline gives: what is made again, between passes of backward
constexpr double kPass = 4e-6;          // seconds that a further pass takes to begin and to end
constexpr double kPasses = 3;           // of a node in a step: one in forward, two in backward
constexpr std::int64_t kDepth = 8;      // channels that products take at once, however few there are
constexpr double kNormAgain = 2.0 / 3;  // x read and y written, where forward reads x for its statistics first

double sum(const std::vector<double>& seconds) { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

std::size_t index(NodeId node) { return static_cast<std::size_t>(node); }

/// How much deeper an image's products are than they count, its channels taken in whole steps.
double padded_depth(const Shape& input) {
  if (input.rank() != 3 || input[2] == 0) return 1;
  return static_cast<double>((input[2] + kDepth - 1) / kDepth * kDepth) / static_cast<double>(input[2]);
}

/// Nodes [first, last] that record on one tape, and what is made again there: those of one stretch that runs again, or
/// (stretch 0) those of none.
struct Scope {
  NodeId first, last;
  Derive derive;
  NodeId stretch = 0;  // its first node
};

/// Follows the ops' rules for recipes (saved_tensor.h) through one scope, and adds up what making them costs.
class Derivation {
 public:
  Derivation(const Graph& graph, const StepProgram& program, const StepCost& cost)
      : graph_(graph),
        cost_(cost),
        deferred_(graph.nodes().size()),
        stretch_(graph.nodes().size()),
        entering_(graph.nodes().size()) {
    for (const ProgramSegment& segment : program.segments) {
      for (const NodePlan& plan : segment.nodes) deferred_[index(plan.last)] = plan.defers_norm;
      if (!segment.recompute) continue;
      entering_[index(segment.first)] = segment.inputs;
      for (NodeId node = segment.first; node <= segment.last; ++node) stretch_[index(node)] = segment.first;
    }
  }

  bool deferred(NodeId node) const { return deferred_[index(node)]; }

  /// By node.
  std::vector<double> seconds(const Scope& scope) const {
    std::vector<int> traffic(graph_.nodes().size(), 0);
    for (NodeId node = scope.first; node <= scope.last; ++node)
      if (stretch_[index(node)] == scope.stretch) traffic[index(node)] = recipe_traffic(node, scope, traffic);
    std::vector<int> made(graph_.nodes().size(), 0);  // how often backward makes it, all readers counted before
    std::vector<double> seconds(graph_.nodes().size(), 0);
    for (NodeId node = scope.last; node >= scope.first; --node) {
      if (stretch_[index(node)] != scope.stretch) {
        for (const NodeId input : entering_[index(node)]) ++made[index(input)];  // once, whoever reads it there
        continue;
      }
      const bool again = traffic[index(node)] > 0;
      if (again)
        seconds[index(node)] = made[index(node)] * (kPass + kAgain * own_traffic(node) * cost_.touch[index(node)]);
      const int wanted = (again || deferred_[index(node)] ? made[index(node)] : 0) + (reads(node) ? 1 : 0);
      for (const NodeId input : graph_.node(node).inputs) made[index(input)] += wanted;
    }
    return seconds;
  }

 private:
  int own_traffic(NodeId node) const { return 1 + static_cast<int>(graph_.node(node).inputs.size()); }
  bool reads(NodeId node) const { return graph_.node(node).layer->reads_input_again(graph_.input_shapes(node)); }
  /// What Recipe::traffic of the node's output is; 0 where it has no recipe.
  int recipe_traffic(NodeId node, const Scope& scope, const std::vector<int>& traffic) const {
    const GraphNode& description = graph_.node(node);
    const std::vector<Shape> inputs = graph_.input_shapes(node);
    const bool wanted = inputs.size() > 1 ? scope.derive == Derive::cheap : scope.derive != Derive::none;
    if (!wanted || deferred_[index(node)] || !description.layer->cheap(inputs)) return 0;
    int total = own_traffic(node);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] != description.output || !kept(description.inputs[i], node, traffic)) return 0;
      total += traffic[index(description.inputs[i])];
    }
    return total <= Recipe::kMostTraffic ? total : 0;
  }
  /// Whether backward keeps a value whatever the recipe of `reader` needs.
  bool kept(NodeId value, NodeId reader, const std::vector<int>& traffic) const {
    if (deferred_[index(value)] || traffic[index(value)] > 0 || reads(reader)) return true;
    for (NodeId other = value + 1; other <= graph_.output(); ++other)
      if (other != reader && std::ranges::count(graph_.node(other).inputs, value) > 0 && reads(other)) return true;
    return false;
  }

  const Graph& graph_;
  const StepCost& cost_;
  std::vector<bool> deferred_;
  std::vector<NodeId> stretch_;                // by node: the first of the stretch that it runs again with; 0: none
  std::vector<std::vector<NodeId>> entering_;  // by the first node of a stretch: what it reads of others
};

}  // namespace

DeviceRates typical_rates(Device device, Precision precision) {
  const DeviceProfile profile = profile_of(device);
  return {.bytes_per_s = profile.copy_bytes_per_s, .flops_per_s = profile.flops_per_s(precision.compute())};
}

StepCost predict_cost(const Graph& graph, std::int64_t batch, Precision precision, const DeviceRates& rates) {
  const auto element = static_cast<double>(size_of(precision.compute()));
  StepCost cost;
  for (NodeId id = graph.input(); id <= graph.output(); ++id) {
    const GraphNode& node = graph.node(id);
    cost.touch.push_back(static_cast<double>(node.output.elements() * batch) * element / rates.bytes_per_s);
    if (node.layer == nullptr) {
      cost.forward.push_back(0);
      cost.again.push_back(0);
      continue;
    }
    const std::vector<Shape> inputs = graph.input_shapes(id);
    const double flops = padded_depth(inputs[0]) * static_cast<double>(node.layer->flops(inputs) * batch),
                 bytes = static_cast<double>(node.layer->traffic(inputs) * batch) * element;
    cost.forward.push_back(std::max(flops / (kFlopsReached * rates.flops_per_s), bytes / rates.bytes_per_s));
    cost.again.push_back(kPass +
                         kAgain * cost.forward.back() * (node.layer->uses_batch_statistics() ? kNormAgain : 1.0));
  }
  cost.step = (1 + kBackward) * sum(cost.forward);
  cost.deferral.resize(graph.nodes().size());
  for (const ProgramSegment& segment : lower(graph, {}).segments)
    for (const NodePlan& plan : segment.nodes)  // neither written nor read
      if (plan.defers_norm) cost.step -= cost.deferral[index(plan.last)] = 2 * cost.touch[index(plan.last)];
  return cost;
}

double UpdateCost::images_per_s(std::int64_t batch) const {
  const auto images = static_cast<double>(batch);
  return images / (fixed_seconds + sample_seconds * images);
}

double UpdateCost::gain_beyond(std::int64_t batch) const {
  return fixed_seconds / (sample_seconds * static_cast<double>(batch));
}

std::int64_t UpdateCost::enough_batch(double gain) const {
  return static_cast<std::int64_t>(std::max(1.0, std::ceil(fixed_seconds / (sample_seconds * gain))));
}

UpdateCost predict_update(const Graph& graph, Precision precision, const DeviceRates& rates, const UpdateSize& size) {
  const StepCost cost = predict_cost(graph, 1, precision, rates);
  // Without the step's kernels there is nothing to bound: one that has no arithmetic still reads its input.
  const double least = static_cast<double>(graph.input_shape().elements()) / rates.bytes_per_s;
  const StepWork update = least_step_work(graph, 0, precision, size.parameters, size.moments);
  return {.sample_seconds = std::max(cost.step, least),
          .fixed_seconds = kPasses * static_cast<double>(graph.output() - graph.input()) * kPass +
                           update.bytes / rates.bytes_per_s / static_cast<double>(size.accumulate)};
}

std::vector<double> derivation_seconds(const Graph& graph, Derive derive, const StepCost& cost) {
  return Derivation(graph, lower(graph, {.derive = derive}), cost).seconds({1, graph.output(), derive});
}

double extra_work(const Graph& graph, const RecomputeOptions& recompute, const StepCost& cost) {
  const StepProgram program = lower(graph, recompute);
  const Derivation derivation(graph, program, cost);
  double seconds = sum(derivation.seconds({1, graph.output(), recompute.derives()}));
  for (NodeId node = 1; node <= graph.output(); ++node)
    if (!derivation.deferred(node)) seconds += cost.deferral[index(node)];  // its reader is on the other side
  for (const ProgramSegment& segment : program.segments) {
    if (!segment.recompute) continue;
    for (NodeId node = segment.first; node <= segment.last; ++node) {
      const bool unread = recompute.kind == RecomputeOptions::Kind::named && node == segment.last &&
                          graph.node(node).layer->traits().skips_unused_output;
      if (!derivation.deferred(node) && !unread) seconds += cost.again[index(node)];
    }
    seconds += sum(derivation.seconds({segment.first, segment.last, recompute.derives_again(), segment.first}));
  }
  return cost.step > 0 ? seconds / cost.step : 0;
}

}  // namespace bantam
