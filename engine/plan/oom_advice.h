// Advice for a step that does not fit: changes of its options, each of which would, by plan.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "bantam/engine/plan/step_cost.h"
#include "bantam/engine/plan/step_plan.h"

namespace bantam {

struct OomQuestion {
  StepPlanOptions step;     ///< what does not fit
  std::uint64_t bytes = 0;  ///< what there is
  DeviceRates rates;
  /// The pool that a run with these options holds, planned; empty: the step's alone (plan_step).
  std::function<std::uint64_t(const StepPlanOptions&)> pool;
};

/// One change, which alone makes the run fit.
struct FittingEdit {
  enum class Kind : std::uint8_t {
    precision,  ///< float32 to mixed_float16
    recompute,  ///< the policy of least work that fits (search_recompute)
    batch       ///< a divisor of the batch, with as much more accumulation: the same effective batch
  } kind;
  StepPlanOptions step;          ///< the options with the change
  std::uint64_t peak_bytes = 0;  ///< of a step, planned
  std::uint64_t pool_bytes = 0;  ///< of the run (OomQuestion::pool), planned
  double extra_work = 0;         ///< predicted share of a step's time, of recompute
  /// The model's function in training is another: it has batch statistics, which are then those of a smaller batch.
  bool changes_statistics = false;
};

struct OomAdvice {
  std::uint64_t peak_bytes = 0;    ///< planned, without a change
  std::uint64_t needed_bytes = 0;  ///< the pool that would do without a change
  bool estimate = false;           ///< extra_work is of a device whose rates are an estimate
  std::vector<FittingEdit> edits;  ///< at most one of a kind, in the kinds' order; each needs less
};

/// Plans the changes on the meta device. Throws what planning throws.
OomAdvice advise(const Graph& graph, const OomQuestion& question);

}  // namespace bantam
