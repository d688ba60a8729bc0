// Steps run on the meta device for their logs, and what the differences between logs cost.
#include "bantam/engine/plan/step_cost.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>

#include "bantam/engine/model/lower.h"
#include "bantam/engine/plan/step_ledger.h"

namespace bantam {
namespace {

using kernels::KernelPhase;

constexpr std::int64_t kLargeBatch = 256;  // samples at which bytes and operations outweigh what each kernel costs

std::size_t index(NodeId node) { return static_cast<std::size_t>(node); }

/// One micro-batch and an update, with this recomputed.
StepPlanOptions with(StepPlanOptions step, RecomputeOptions recompute) {
  step.accumulate = 1;
  step.replicas = {};
  step.model.recompute = std::move(recompute);
  return step;
}

/// Seconds by phase and node.
class NodeSeconds {
 public:
  NodeSeconds(const Graph& graph, const StepPlanOptions& step, const DeviceRates& rates)
      : ledger_(step_ledger(graph, step, rates)) {
    std::unordered_map<std::string_view, NodeId> nodes;
    for (NodeId node = 1; node <= graph.output(); ++node) nodes.emplace(graph.node(node).name, node);
    for (std::vector<double>& phase : seconds_) phase.resize(graph.nodes().size());
    for (const NodeCost& cost : ledger_.nodes)
      if (const auto found = nodes.find(cost.owner); found != nodes.end())
        seconds_[static_cast<std::size_t>(cost.phase)][index(found->second)] += cost.seconds;
  }
  double total() const { return ledger_.seconds; }
  const std::vector<double>& of(KernelPhase phase) const { return seconds_[static_cast<std::size_t>(phase)]; }
  /// Seconds of the node's forward and backward, which every step runs whether it recomputes the node or not.
  double once(NodeId node) const {
    return of(KernelPhase::forward)[index(node)] + of(KernelPhase::backward)[index(node)];
  }

 private:
  StepLedger ledger_;
  std::vector<double> seconds_[kernels::kKernelPhases];
};

RecomputeOptions one_segment(const Graph& graph) {
  const std::string &first = graph.node(1).name, &last = graph.node(graph.output()).name;
  return {RecomputeOptions::Kind::named, {first == last ? first : fmt::format("{}..{}", first, last)}};
}

RecomputeOptions segment_a_node(const Graph& graph) {
  RecomputeOptions options{.kind = RecomputeOptions::Kind::named};
  for (NodeId node = 1; node <= graph.output(); ++node) options.names.push_back(graph.node(node).name);
  return options;
}

}  // namespace

double step_seconds(const Graph& graph, const StepPlanOptions& step, const DeviceRates& rates) {
  double seconds = 0;
  (void)step_peak(graph, step, [&](const kernels::KernelLog& log) { seconds = predict_seconds(log, rates); });
  return seconds;
}

double extra_work(const Graph& graph, const StepPlanOptions& step, const DeviceRates& rates) {
  StepPlanOptions without = step;
  without.model.recompute = {};
  const double seconds = step_seconds(graph, without, rates);
  return seconds > 0 ? step_seconds(graph, step, rates) / seconds - 1 : 0;
}

StepCost predict_cost(const Graph& graph, const StepPlanOptions& step, const DeviceRates& rates) {
  const NodeSeconds none(graph, with(step, {}), rates), whole(graph, with(step, one_segment(graph)), rates),
      single(graph, with(step, segment_a_node(graph)), rates);
  StepCost cost{.recomputed = whole.of(KernelPhase::recompute),
                .last = single.of(KernelPhase::recompute),
                .deferral = std::vector<double>(graph.nodes().size()),
                .step = none.total()};
  cost.recomputed[index(graph.output())] = none.of(KernelPhase::forward)[index(graph.output())];  // unused output
  for (const ProgramSegment& segment : lower(graph, {}).segments)
    for (const NodePlan& plan : segment.nodes) {
      if (!plan.defers_norm) continue;
      const NodeId node = plan.last, reader = graph.only_reader(node);
      const double more = single.once(node) + single.once(reader) - none.once(node) - none.once(reader);
      cost.deferral[index(node)] = std::max(0.0, more);
    }
  return cost;
}

std::vector<double> rebuild_seconds(const Graph& graph, const StepPlanOptions& step, Derive derive,
                                    const DeviceRates& rates) {
  return NodeSeconds(graph, with(step, {.derive = derive}), rates).of(KernelPhase::rebuild);
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

UpdateCost predict_update(const Graph& graph, const StepPlanOptions& step, const DeviceRates& rates) {
  const auto ledger_of = [&](std::int64_t batch) {
    StepPlanOptions one = with(step, step.model.recompute);
    one.batch = batch;
    return step_ledger(graph, one, rates);
  };
  const StepLedger large = ledger_of(kLargeBatch), larger = ledger_of(2 * kLargeBatch);
  // A step whose kernels read nothing of a sample is not to be bounded: it still reads its input.
  const double least = static_cast<double>(graph.input_shape().elements()) / rates.bytes_per_s,
               sample = std::max((larger.seconds - large.seconds) / kLargeBatch, least);
  double update = 0;
  for (const NodeCost& node : large.nodes)
    if (node.phase == KernelPhase::update) update += node.seconds;
  const double shared = update * (1 - 1 / static_cast<double>(step.accumulate * step.replicas.count()));
  return {.sample_seconds = sample, .fixed_seconds = std::max(0.0, large.seconds - shared - sample * kLargeBatch)};
}

}  // namespace bantam
