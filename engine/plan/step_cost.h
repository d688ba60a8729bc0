// StepCost: the predicted time of a step, from the kernels that it calls on a meta device: to compare policies and
// batch sizes, not to promise seconds.
#pragma once

#include <cstdint>
#include <vector>

#include "bantam/engine/plan/kernel_cost.h"
#include "bantam/engine/plan/step_plan.h"

namespace bantam {

/// Predicted seconds of one update.
double step_seconds(const Graph& graph, const StepPlanOptions& step, const DeviceRates& rates);

/// Returns the time that the step's recompute policy adds, as a share of the same step without: 0.04 is 4 % more. Both
/// steps are run on the meta device.
double extra_work(const Graph& graph, const StepPlanOptions& step, const DeviceRates& rates);

/// Seconds that a search for policies adds up, of one micro-batch and an update. By node, of the nodes that run as one
/// op at the first; 0 for the input.
struct StepCost {
  std::vector<double> recomputed;  ///< recomputed within a segment that continues after it
  std::vector<double> last;        ///< recomputed as the last node of a segment, whose output nobody reads
  std::vector<double> deferral;    ///< what a norm saves that its reader applies where neither is recomputed, or 0
  double step = 0;                 ///< where nothing is recomputed
};

/// From three runs on the meta device: with nothing recomputed, with the graph as one checkpoint segment, and with each
/// node as a segment of its own. The step's own recompute options do not matter.
StepCost predict_cost(const Graph& graph, const StepPlanOptions& step, const DeviceRates& rates);

/// Seconds that backward spends on rebuilding what is derived where nothing is recomputed, by the node whose output is
/// rebuilt.
std::vector<double> rebuild_seconds(const Graph& graph, const StepPlanOptions& step, Derive derive,
                                    const DeviceRates& rates);

/// The time of an update as a function of the batch: a part proportional to it, and a constant.
struct UpdateCost {
  double sample_seconds = 0;  ///< forward and backward of one more sample
  double fixed_seconds = 0;   ///< whatever the batch: kernels begin and end, and the update moves weights and moments

  double images_per_s(std::int64_t batch) const;
  /// How many more images/s the largest of batches has than this one, as a share: 0.04 is 4 %.
  double gain_beyond(std::int64_t batch) const;
  /// The least batch from which no larger one has `gain` (of gain_beyond) more images/s.
  std::int64_t enough_batch(double gain) const;
};

/// Predicts the time of a micro-batch, with its share of the update where several share one, for the step's options
/// with any batch: a line through the predicted seconds of two large batches, so good for comparing batch sizes, not
/// for promising images/s.
UpdateCost predict_update(const Graph& graph, const StepPlanOptions& step, const DeviceRates& rates);

}  // namespace bantam
