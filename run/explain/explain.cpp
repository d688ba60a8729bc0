// The program's nodes, the ledger's kernels and the plan's buffers, joined by layer path.
#include "bantam/run/explain/explain.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>

#include "bantam/engine/model/frozen_norms.h"
#include "bantam/engine/model/lower.h"
#include "bantam/engine/plan/step_ledger.h"
#include "bantam/run/bench/step_session.h"

namespace bantam::run {
namespace {

using kernels::KernelPhase;

ExplainedNode describe(const Graph& graph, const NodePlan& plan) {
  ExplainedNode node{.name = graph.node(plan.first).name};
  for (NodeId layer = plan.first; layer <= plan.last; ++layer) node.layers.push_back(graph.node(layer).name);
  node.runs = plan.fusion != nullptr ? plan.fusion->name : graph.node(plan.first).layer->kind();
  if (plan.statistics_for != 0) node.statistics_for = graph.node(plan.statistics_for).name;
  if (plan.defers_norm) node.norm_applied_by = graph.node(graph.only_reader(plan.last)).name;
  if (plan.recomputed) node.backward = Keeping::recomputed;
  return node;
}

/// The node that a cost belongs to: an operation's, or a new one of what the program has no node for.
ExplainedNode& owner_of(std::vector<ExplainedNode>& nodes, const std::string& owner) {
  const auto found = std::ranges::find(nodes, owner, &ExplainedNode::name);
  if (found != nodes.end()) return *found;
  return nodes.emplace_back(ExplainedNode{.name = owner});
}

void add_costs(const StepLedger& ledger, Explanation& explanation) {
  for (const NodeCost& cost : ledger.nodes) {
    ExplainedNode& node = owner_of(explanation.nodes, cost.owner);
    node.phases.push_back({.phase = cost.phase,
                           .kernels = cost.kernels,
                           .bytes = cost.bytes,
                           .flops = cost.flops,
                           .predicted_seconds = cost.seconds});
    if (cost.phase == KernelPhase::rebuild && node.backward == Keeping::nothing) node.backward = Keeping::rebuilt;
  }
  explanation.kernels = ledger.kernels;
  explanation.bytes = ledger.bytes;
  explanation.flops = ledger.flops;
  explanation.predicted_seconds = ledger.seconds;
}

void add_kept(const StepPlan& plan, std::vector<ExplainedNode>& nodes) {
  for (const auto& [owner, bytes] : kept_bytes(plan)) {
    ExplainedNode& node = owner_of(nodes, owner);
    node.kept_bytes = bytes;
    if (node.backward == Keeping::nothing) node.backward = Keeping::kept;
  }
}

void add_times(StepTimes times, Explanation& explanation) {
  for (const NodeTime& time : times.nodes) {
    ExplainedNode& node = owner_of(explanation.nodes, time.owner);
    const auto phase = std::ranges::find(node.phases, time.phase, &ExplainedPhase::phase);
    if (phase != node.phases.end())
      phase->measured_seconds = time.seconds;
    else
      node.phases.push_back({.phase = time.phase, .measured_seconds = time.seconds});
  }
  explanation.times = std::move(times);
}

template <class Value>
Value sum(const std::vector<ExplainedPhase>& phases, Value ExplainedPhase::*field) {
  return std::accumulate(phases.begin(), phases.end(), Value{},
                         [field](Value total, const ExplainedPhase& phase) { return total + phase.*field; });
}

}  // namespace

std::string_view to_string(Keeping keeping) {
  constexpr std::string_view kNames[] = {"-", "kept", "rebuilt", "recomputed"};
  return kNames[static_cast<std::size_t>(keeping)];
}

std::int64_t ExplainedNode::bytes() const { return sum(phases, &ExplainedPhase::bytes); }
std::int64_t ExplainedNode::flops() const { return sum(phases, &ExplainedPhase::flops); }
double ExplainedNode::predicted_seconds() const { return sum(phases, &ExplainedPhase::predicted_seconds); }

double ExplainedNode::measured_seconds() const {
  double seconds = 0;
  for (const ExplainedPhase& phase : phases) seconds += phase.measured_seconds.value_or(0);
  return seconds;
}

Explanation explain(const RunConfig& config, const StepCase& step, const DeviceRates& rates) {
  const Graph& graph = config.model.graph;
  const StepPlanOptions options = train_plan_options(config, step);
  Explanation explanation;
  const std::vector<bool> without_gradient =
      nodes_without_gradient(graph, nodes_that_train(graph, options.model.groups));
  const StepProgram program = lower(graph, options.model.recompute, options.model.fusion,
                                    {.compute = options.model.precision.compute(),
                                     .device = options.device.kind,
                                     .without_gradient = &without_gradient});
  for (const ProgramSegment& segment : program.segments)
    for (const NodePlan& plan : segment.nodes) explanation.nodes.push_back(describe(graph, plan));
  add_costs(step_ledger(graph, options, rates), explanation);
  add_kept(plan_step(graph, options), explanation.nodes);
  return explanation;
}

Explanation explain_measured(const RunConfig& config, const StepCase& step, const DeviceRates& rates, int threads) {
  Explanation explanation = explain(config, step, rates);
  StepSession session(config, step, config.device, threads);
  add_times(measure_node_times(session.step(), session.batch(), config.train.accumulate), explanation);
  return explanation;
}

}  // namespace bantam::run
