// StepLedger: what each node of a graph runs in a step, with its bytes, operations and predicted time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/engine/plan/kernel_cost.h"
#include "bantam/engine/plan/step_plan.h"

namespace bantam {

/// The kernels that one node runs in one phase of a step, with their summed work and predicted time.
struct NodeCost {
  std::string owner;  ///< layer path: a node's name (of layers that run as one op the first's), "loss", "optimizer"
  kernels::KernelPhase phase = kernels::KernelPhase::forward;
  std::vector<std::string> kernels;  ///< names of the kernels called, in order
  std::int64_t bytes = 0;            ///< read plus written (KernelWork::bytes)
  std::int64_t flops = 0;            ///< of convolutions and matrix products (KernelWork::flops)
  double seconds = 0;                ///< predicted (predict_seconds)
};

/// The kernels of one update: its micro-batches, with what is recomputed, and the optimizer's.
struct StepLedger {
  std::vector<NodeCost> nodes;  ///< one an owner and phase, in order of their first kernels; they add up to the step
  std::int64_t kernels = 0, bytes = 0, flops = 0;
  double seconds = 0;

  /// An owner's seconds in one phase.
  double seconds_of(std::string_view owner, kernels::KernelPhase phase) const;
};

/// Adds up the log's kernels by owner and phase. The log points to its owners' names, which must still be there.
StepLedger make_ledger(const kernels::KernelLog& log, const DeviceRates& rates);

/// Runs the step on the meta stand-in of its device, with the very options: fusion, recompute, accumulation. Throws
/// what step_peak throws.
StepLedger step_ledger(const Graph& graph, const StepPlanOptions& options, const DeviceRates& rates);

}  // namespace bantam
