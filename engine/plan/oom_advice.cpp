// One question a kind of change, answered by plans.
#include "bantam/engine/plan/oom_advice.h"

#include <optional>
#include <utility>

#include "bantam/engine/plan/recompute_search.h"
#include "bantam/engine/step/training_step.h"

namespace bantam {
namespace {

class Advisor {
 public:
  Advisor(const Graph& graph, const OomQuestion& question) : graph_(graph), question_(question) {}

  OomAdvice run() {
    OomAdvice advice{.peak_bytes = step_peak(graph_, question_.step)};
    advice.needed_bytes = pool(question_.step);
    // Where a run that should fit by plan does not, all that helps is to need less.
    for (auto& edit : {precision(), recompute(), batch()})
      if (edit && edit->pool_bytes < advice.needed_bytes) advice.edits.push_back(*edit);
    return advice;
  }

 private:
  std::uint64_t pool(const StepPlanOptions& step) const {
    return question_.pool ? question_.pool(step) : plan_step(graph_, step).pool_bytes;
  }
  bool fits(const StepPlanOptions& step) const { return pool(step) <= question_.bytes; }
  std::optional<FittingEdit> edit(FittingEdit::Kind kind, StepPlanOptions step) const {
    const std::uint64_t pool_bytes = pool(step);
    if (pool_bytes > question_.bytes) return std::nullopt;
    const std::uint64_t peak = step_peak(graph_, step);
    return FittingEdit{kind, std::move(step), peak, pool_bytes};
  }

  std::optional<FittingEdit> precision() const {
    StepPlanOptions step = question_.step;
    if (step.model.precision.kind != PrecisionKind::float32) return std::nullopt;
    step.model.precision.kind = PrecisionKind::mixed_float16;
    return edit(FittingEdit::Kind::precision, std::move(step));
  }

  std::optional<FittingEdit> recompute() const {
    StepPlanOptions step = question_.step;
    const RecomputeChoice choice = search_recompute(graph_, {.step = step,
                                                             .bytes = question_.bytes,
                                                             .rates = question_.rates,
                                                             .fits = [&](const RecomputeOptions& recompute) {
                                                               StepPlanOptions other = step;
                                                               other.model.recompute = recompute;
                                                               return fits(other);
                                                             }});
    const bool changes =
        choice.recompute.kind != RecomputeOptions::Kind::none || choice.recompute.derives() != Derive::none;
    if (!choice.fits || !changes) return std::nullopt;
    step.model.recompute = choice.recompute;
    const std::uint64_t pool_bytes = pool(step);
    return FittingEdit{FittingEdit::Kind::recompute, std::move(step), choice.peak_bytes, pool_bytes, choice.extra_work};
  }

  std::optional<FittingEdit> batch() const {
    const std::int64_t whole = question_.step.batch;
    for (std::int64_t parts = 2; parts <= whole; ++parts) {
      if (whole % parts != 0) continue;
      StepPlanOptions step = question_.step;
      step.batch = whole / parts;
      step.accumulate *= parts;
      if (auto found = edit(FittingEdit::Kind::batch, std::move(step))) {
        found->changes_statistics = uses_batch_statistics(graph_);
        return found;
      }
    }
    return std::nullopt;
  }

  const Graph& graph_;
  const OomQuestion& question_;
};

}  // namespace

OomAdvice advise(const Graph& graph, const OomQuestion& question) {
  OomAdvice advice = Advisor(graph, question).run();
  advice.estimate = question.rates.estimate;
  return advice;
}

}  // namespace bantam
