// run::explain: the step program of a configuration, operation by operation, with what each costs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bantam/engine/plan/kernel_cost.h"
#include "bantam/kernels/common/kernel_log.h"
#include "bantam/run/config/step_case.h"
#include "bantam/run/explain/node_times.h"

namespace bantam::run {

/// The kernels of an operation in one phase of an update.
struct ExplainedPhase {
  kernels::KernelPhase phase = kernels::KernelPhase::forward;
  std::vector<std::string> kernels;  ///< names of the kernels called, in order
  std::int64_t bytes = 0;            ///< of device memory, read plus written
  std::int64_t flops = 0;            ///< of convolutions and matrix products
  double predicted_seconds = 0;
  std::optional<double> measured_seconds;  ///< nullopt where nothing was measured
};

/// How backward obtains the tensors that an operation writes.
enum class Keeping : std::uint8_t {
  nothing,    ///< it needs none of them
  kept,       ///< in memory from forward on
  rebuilt,    ///< by a recipe, from tensors that are kept anyway
  recomputed  ///< with the rest of its checkpoint segment
};
std::string_view to_string(Keeping keeping);

/// One operation of the step program, or (without layers) another part of an update: the loss, the optimizer.
struct ExplainedNode {
  std::string name;                 ///< path of its first layer, or "loss", "optimizer", …
  std::vector<std::string> layers;  ///< that it stands for, in order
  std::string runs;                 ///< the layer's kind, or the fusion that runs its layers
  std::string statistics_for;       ///< the batch norm whose statistics it computes; "": none
  std::string norm_applied_by;      ///< the layer that its batch norm is deferred to; "": it is not
  Keeping backward = Keeping::nothing;
  std::uint64_t kept_bytes = 0;  ///< live from its forward into backward
  std::vector<ExplainedPhase> phases;

  std::int64_t bytes() const;
  std::int64_t flops() const;
  double predicted_seconds() const;
  double measured_seconds() const;  ///< 0 where nothing was measured
};

/// One update of a training step. Nodes add up to it.
struct Explanation {
  std::vector<ExplainedNode> nodes;
  std::int64_t kernels = 0, bytes = 0, flops = 0;
  double predicted_seconds = 0;
  std::optional<StepTimes> times;  ///< where it was measured: gaps, and the step as a whole
};

/// The program of a configuration's update (`step`'s batch, precision and recompute, the configuration's accumulation)
/// on its device, which need not be in this machine: nothing is allocated there. Predicted by `rates`. Throws what
/// planning throws.
Explanation explain(const RunConfig& config, const StepCase& step, const DeviceRates& rates);

/// The same, run on the configuration's own device and measured there (measure_node_times, whose errors it throws).
Explanation explain_measured(const RunConfig& config, const StepCase& step, const DeviceRates& rates, int threads);

}  // namespace bantam::run
