// Budget-driven recompute: which parts of a model to recompute in backward, so that a step fits with the least extra
// work.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "bantam/engine/plan/step_cost.h"
#include "bantam/engine/plan/step_plan.h"

namespace bantam {

struct RecomputeQuestion {
  /// The step asked about; its own recompute options do not matter.
  StepPlanOptions step;
  std::uint64_t bytes = 0;  ///< for all that the step holds
  DeviceRates rates;
  /// Whether the run fits with this policy, fragmentation and all; empty: step_fits(step, bytes). Asked only of
  /// policies whose planned peak is within the bytes.
  std::function<bool(const RecomputeOptions&)> fits;
};

struct RecomputeChoice {
  bool fits = false;  ///< false: nothing tried fits; the rest tells of the policy with the lowest peak
  RecomputeOptions recompute;
  std::uint64_t peak_bytes = 0;  ///< planned
  double extra_work = 0;         ///< predicted share of a step's time: 0.04 is 4 %
  std::int64_t plans = 0;        ///< steps planned to find it
};

/// Tries policies on the meta device: none; inner or all cheap tensors derived; consecutive blocks recomputed as
/// checkpoint segments, alone and with derived tensors, which may be derived within segments or not (`whole`). A
/// segment is any run of layers of which only the last value is read outside, also within a block. A dynamic programme
/// along the layers chooses segments: the least predicted work for a bound on kept bytes and one on the bytes alive
/// while a segment is recomputed; both bounds are searched with exact plans, and the best of each way to derive is then
/// improved by leaving segments out, making them shorter and exchanging them. Equal questions have equal answers. About
/// a second for resnet50.
RecomputeChoice search_recompute(const Graph& graph, const RecomputeQuestion& question);

/// One way to run a step.
struct RecomputePoint {
  RecomputeOptions recompute;
  std::uint64_t peak_bytes = 0;  ///< planned
  double seconds = 0;            ///< predicted, of an update
  double extra_work = 0;         ///< beside the step without recompute, as a share of it
};

/// The trade of bytes for time of one step: the policies that the search above finds for budgets that fall by a tenth
/// each, from the peak without recompute to the least that anything found needs. By falling peak; each takes longer
/// than the one before, or has more segments. `question.bytes` and `question.fits` do not matter. Equal questions have
/// equal answers.
std::vector<RecomputePoint> recompute_curve(const Graph& graph, const RecomputeQuestion& question);

}  // namespace bantam
