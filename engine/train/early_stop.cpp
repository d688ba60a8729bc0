// When evaluations have stopped improving.
#include <cmath>

#include <fmt/format.h>

#include "bantam/engine/train/trainer.h"

namespace bantam {
namespace {

/// A number for what is compared (FNV-1a), never 0: a resumed run that watches something else begins anew.
std::uint32_t rule_of(const EarlyStopOptions& options) {
  std::uint32_t hash = 2166136261u;
  for (const char c : options.metric + (options.larger ? "+" : "-"))
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash == 0 ? 1 : hash;
}

}  // namespace

void note_evaluation(const EarlyStopOptions& options, const Metrics& validation, std::int64_t epoch,
                     EarlyStopState& state) {
  if (state.rule != rule_of(options)) state = {.rule = rule_of(options)};
  const double value = value_of(validation, options.metric), sign = options.larger ? 1 : -1;
  const bool better =
      std::isfinite(value) && (state.best_epoch == 0 || sign * value > sign * state.best + options.min_delta);
  if (!better) {
    ++state.waited;
    return;
  }
  state.best = value;
  state.best_epoch = epoch;
  state.waited = 0;
}

bool stops_early(const EarlyStopOptions& options, const EarlyStopState& state) {
  return state.rule == rule_of(options) && state.waited >= options.patience;
}

std::string early_stop_reason(const EarlyStopOptions& options, const EarlyStopState& state) {
  const std::string best = state.best_epoch == 0
                               ? "no evaluation had a finite one"
                               : fmt::format("the best is {:.6g}, of epoch {}", state.best, state.best_epoch);
  return fmt::format("train.stop_early: validation {} has not improved for {} evaluation{}; {}", options.metric,
                     state.waited, state.waited == 1 ? "" : "s", best);
}

std::vector<double> early_stop_numbers(const EarlyStopState& state) {
  return {static_cast<double>(state.rule), state.best, static_cast<double>(state.best_epoch),
          static_cast<double>(state.waited)};
}

EarlyStopState early_stop_from(const std::vector<double>& numbers) {
  if (numbers.size() != 4) return {};
  const auto whole = [&](std::size_t i, double most) {
    return numbers[i] >= 0 && numbers[i] <= most ? static_cast<std::int64_t>(numbers[i]) : 0;
  };
  constexpr double kMost = 9e15;  // exact in float64
  return {.rule = static_cast<std::uint32_t>(whole(0, 4294967295.0)),
          .best = numbers[1],
          .best_epoch = whole(2, kMost),
          .waited = whole(3, kMost)};
}

}  // namespace bantam
