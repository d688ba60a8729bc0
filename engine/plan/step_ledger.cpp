// A step's log, added up by owner and phase.
#include "bantam/engine/plan/step_ledger.h"

#include <map>
#include <utility>

namespace bantam {

double StepLedger::seconds_of(std::string_view owner, kernels::KernelPhase phase) const {
  double seconds = 0;
  for (const NodeCost& node : nodes)
    if (node.phase == phase && node.owner == owner) seconds += node.seconds;
  return seconds;
}

StepLedger make_ledger(const kernels::KernelLog& log, const DeviceRates& rates) {
  StepLedger ledger;
  std::map<std::pair<std::string_view, kernels::KernelPhase>, std::size_t> places;
  for (const kernels::KernelEntry& entry : log.entries()) {
    const auto [place, is_new] = places.try_emplace({entry.owner, entry.phase}, ledger.nodes.size());
    if (is_new) ledger.nodes.push_back({.owner = entry.owner, .phase = entry.phase});
    NodeCost& node = ledger.nodes[place->second];
    const double seconds = predict_seconds(entry.work, rates);
    node.kernels.emplace_back(entry.kernel);
    node.bytes += entry.work.bytes, ledger.bytes += entry.work.bytes;
    node.flops += entry.work.flops, ledger.flops += entry.work.flops;
    node.seconds += seconds, ledger.seconds += seconds;
    ++ledger.kernels;
  }
  return ledger;
}

StepLedger step_ledger(const Graph& graph, const StepPlanOptions& options, const DeviceRates& rates) {
  StepLedger ledger;
  (void)step_peak(graph, options, [&](const kernels::KernelLog& log) { ledger = make_ledger(log, rates); });
  return ledger;
}

}  // namespace bantam
