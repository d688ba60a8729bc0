// ReduceLROnPlateau's rule.
#include "bantam/engine/optimizers/plateau.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/metrics/metric.h"

namespace bantam {
namespace {

/// A difference of values that is no change.
constexpr double kLeastChange = 1e-8;

}  // namespace

PlateauOptions read_plateau(ConfigMap& options) {
  constexpr IntegerRange kCount{.min = 0, .max = 1'000'000'000};
  PlateauOptions plateau;
  plateau.metric =
      options.text({"metric", "loss, or one of train.metrics, of the validation samples.", "accuracy"}, "loss");
  const bool is_error = plateau.metric == "loss" || plateau.metric == "mse" || plateau.metric == "mae";
  plateau.larger = options.choice({"mode", "Whether larger or smaller values are better.", "max",
                                   "min for loss, mse and mae, else max"},
                                  {"max", "min"}, is_error ? "min" : "max") == "max";
  plateau.factor = options.number({"factor", "What the value is multiplied by.", "0.5"},
                                  {.min = 0, .max = 1, .min_open = true, .max_open = true}, 0.1);
  plateau.patience =
      options.integer({"patience", "Evaluations without an improvement that change nothing.", "3"}, kCount, 10);
  plateau.threshold = options.number({"threshold", "How much better than the best before an improvement is."},
                                     {.min = 0, .max = 1e30}, 1e-4);
  plateau.relative = options.choice({"threshold_mode", "relative: a share of the best; absolute: a difference."},
                                    {"relative", "absolute"}, "relative") == "relative";
  plateau.cooldown =
      options.integer({"cooldown", "Evaluations after a change that do not count as bad ones.", "2"}, kCount, 0);
  plateau.final = options.number({"final", "The value does not fall below this."}, {.min = 0, .max = 1e30}, 0.0);
  return plateau;
}

Plateau::Plateau(PlateauOptions options, double peak)
    : options_(std::move(options)),
      peak_(peak),
      value_(peak),
      best_(options_.larger ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity()) {}

bool Plateau::improves(double result) const {
  const double sign = options_.larger ? 1.0 : -1.0;
  const double bar = options_.relative ? best_ * (1.0 + sign * options_.threshold) : best_ + sign * options_.threshold;
  return options_.larger ? result > bar : result < bar;
}

void Plateau::evaluated(const Metrics& validation) {
  const double result = value_of(validation, options_.metric);
  if (improves(result)) {
    best_ = result;
    bad_ = 0;
  } else {
    ++bad_;
  }
  if (cooldown_ > 0) {
    --cooldown_;
    bad_ = 0;
  }
  if (bad_ <= static_cast<double>(options_.patience)) return;
  const double next = std::max(value_ * options_.factor, options_.final);
  if (value_ - next > kLeastChange) value_ = next;
  cooldown_ = static_cast<double>(options_.cooldown);
  bad_ = 0;
}

std::vector<double> Plateau::state() const { return {value_, best_, bad_, cooldown_, peak_}; }

void Plateau::set_state(const std::vector<double>& numbers) {
  constexpr std::size_t kWithoutPeak = 4;  // older checkpoints do not say it
  const bool has_peak = numbers.size() == kWithoutPeak + 1;
  if ((numbers.size() != kWithoutPeak && !has_peak) || !(numbers[0] >= 0) || (has_peak && !(numbers[4] >= 0)))
    throw DataError(
        fmt::format("the state of schedule on_plateau has {} numbers, expected {} (of older checkpoints {}), the value "
                    "and its peak not negative",
                    numbers.size(), kWithoutPeak + 1, kWithoutPeak));
  value_ = numbers[0];
  best_ = numbers[1];
  bad_ = numbers[2];
  cooldown_ = numbers[3];
  if (has_peak && numbers[4] != peak_) value_ = with_own_peak(numbers[0], numbers[4]);
}

double Plateau::with_own_peak(double value, double peak) const {
  if (peak == 0) return peak_;
  return std::max(value / peak * peak_, std::min(options_.final, peak_));
}

}  // namespace bantam
