// The step with one setting changed, by the cost model and on the device.
#include "bantam/run/profile/step_advice.h"

#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/plan/step_cost.h"
#include "bantam/run/bench/measure.h"
#include "bantam/run/fit/fitting.h"

namespace bantam::run {
namespace {

RunConfig with_fusion(const RunConfig& config, bool fusion) {
  RunConfig changed = config;
  changed.fusion = fusion;
  return changed;
}

double sample_seconds(const RunConfig& config, const StepCase& step) {
  return step_seconds(config.model.graph, train_plan_options(config, step), rates_of(config, step.precision)) /
         static_cast<double>(step.batch);
}

std::uint64_t peak_of(const RunConfig& config, const StepCase& step) {
  return step_peak(config.model.graph, train_plan_options(config, step));
}

/// Collects changes beside one step.
class Changes {
 public:
  Changes(const RunConfig& config, const StepCase& step)
      : config_(config), limit_(bytes_to_fit(config)), seconds_(sample_seconds(config, step)) {}

  void add(std::string words, const StepCase& step, bool fusion) {
    const RunConfig changed = with_fusion(config_, fusion);
    const double share = seconds_ > 0 ? sample_seconds(changed, step) / seconds_ : 1;
    add(std::move(words), step, fusion, share);
  }
  void add(std::string words, const StepCase& step, bool fusion, double share) {
    const std::uint64_t peak = peak_of(with_fusion(config_, fusion), step);
    all_.push_back({.words = std::move(words),
                    .step = step,
                    .fusion = fusion,
                    .estimate = rates_of(config_, step.precision).estimate,
                    .predicted_share = share,
                    .peak_bytes = peak,
                    .fits = limit_ == 0 || peak <= limit_});
  }
  std::vector<StepChange> release() && { return std::move(all_); }

 private:
  const RunConfig& config_;
  std::uint64_t limit_;
  double seconds_;
  std::vector<StepChange> all_;
};

}  // namespace

std::vector<StepChange> step_changes(const RunConfig& config, const StepCase& step, double gap_share) {
  Changes changes(config, step);
  const bool cuda = config.device.kind == DeviceKind::cuda;
  if (cuda && step.precision.kind == PrecisionKind::float32) {
    StepCase other = step;
    other.precision = {PrecisionKind::mixed_float16};
    changes.add("precision: mixed_float16", other, config.fusion);
  }
  if (to_string(step.recompute) != "none") {
    StepCase other = step;
    other.recompute = {};
    changes.add("recompute: none", other, config.fusion);
  }
  if (!config.fusion) changes.add("fusion: on", step, true);
  if (cuda && step.mode != StepMode::captured) {
    StepCase other = step;
    other.mode = StepMode::captured;
    changes.add("train.mode: captured", other, config.fusion, 1 - gap_share);
  }
  StepCase twice = step;
  twice.batch *= 2;
  changes.add(fmt::format("a batch of {}", twice.batch), twice, config.fusion);
  return std::move(changes).release();
}

void try_changes(const RunConfig& config, const StepCase& step, int threads, double seconds,
                 std::vector<StepChange>& changes) {
  const double now = measure_step(config, step, threads, seconds).images_per_s;
  for (StepChange& change : changes) {
    if (!change.fits) continue;
    try {
      const RunConfig changed = with_fusion(config, change.fusion);
      change.measured_share = now / measure_step(changed, change.step, threads, seconds).images_per_s;
    } catch (const OutOfMemory&) {  // it stays a prediction, which its peak explains
    }
  }
}

}  // namespace bantam::run
