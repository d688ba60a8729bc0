// From an optimizer's options to the kinds and values of the update's kernels.
#include "bantam/engine/step/rule_values.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/kernels/update/muon.h"

namespace bantam {
namespace {

kernels::OptimizerKind rmsprop_kind(const OptimizerOptions& o) {
  using enum kernels::OptimizerKind;
  const bool momentum = o.momentum > 0.0f || o.schedules.momentum;
  if (o.centered) return momentum ? rmsprop_centered_momentum : rmsprop_centered;
  return momentum ? rmsprop_momentum : rmsprop;
}

void require(bool fine, const char* what, float value) {
  if (!fine || !std::isfinite(value))
    throw ConfigError(fmt::format("optimizer: {}{}, got {}", what, fine ? " and must be finite" : "", value));
}

/// |a·s + b·s³ + c·s⁵| at its largest for s in [0, most]: at the end, or where a + 3b·s² + 5c·s⁴ = 0.
double largest_of_step(const std::array<float, 3>& coefficients, double most) {
  const double a = coefficients[0], b = coefficients[1], c = coefficients[2];
  const auto p = [&](double s) { return std::abs(s * (a + s * s * (b + s * s * c))); };
  double largest = p(most);
  const auto look_at = [&](double square) {
    if (square > 0 && square < most * most) largest = std::max(largest, p(std::sqrt(square)));
  };
  const double root = 9 * b * b - 20 * a * c;
  if (c == 0 && b != 0) look_at(-a / (3 * b));
  if (c != 0 && root >= 0)
    for (const double sign : {-1.0, 1.0}) look_at((-3 * b + sign * std::sqrt(root)) / (10 * c));
  return largest;
}

void check_rest(const OptimizerOptions& rest) {
  if (rest.kind == OptimizerKind::muon || rest.rule)
    throw ConfigError("optimizer: muon's rest must be another built-in optimizer");
  check_options(rest);
}

}  // namespace

double largest_singular_value(const MuonOptions& options, double first) {
  double now = first, largest = 0;
  for (int step = 0; step < options.steps; ++step) {
    now = largest_of_step(options.coefficients, now);
    if (!std::isfinite(now)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, now);
  }
  return largest;
}

void check_muon(const MuonOptions& o) {
  constexpr int kMostSteps = 10;
  if (o.steps < 1 || o.steps > kMostSteps)
    throw ConfigError(fmt::format("optimizer: muon's steps must be 1 to {}, got {}", kMostSteps, o.steps));
  if (o.normalize_every < 0)
    throw ConfigError(fmt::format("optimizer: normalize_weights must not be negative, got {}", o.normalize_every));
  using kernels::NewtonSchulz;
  const double largest = largest_singular_value(o, NewtonSchulz::kFirstSingularValue);
  if (!(largest <= NewtonSchulz::kMostSingularValue))
    throw ConfigError(
        fmt::format("optimizer: muon's coefficients [{}, {}, {}] take singular values up to {} to {:.4g} in {} steps; "
                    "at most {} is accepted",
                    o.coefficients[0], o.coefficients[1], o.coefficients[2], NewtonSchulz::kFirstSingularValue, largest,
                    o.steps, NewtonSchulz::kMostSingularValue));
}

kernels::OptimizerKind kernel_kind(const OptimizerOptions& options) {
  switch (options.kind) {
    case OptimizerKind::sgd:
      return options.dampening > 0.0f ? kernels::OptimizerKind::sgd_dampened : kernels::OptimizerKind::sgd;
    case OptimizerKind::sgd_nesterov:
      return kernels::OptimizerKind::sgd_nesterov;
    case OptimizerKind::adam:
      return kernels::OptimizerKind::adam;
    case OptimizerKind::adamw:
      return kernels::OptimizerKind::adamw;
    case OptimizerKind::rmsprop:
      return rmsprop_kind(options);
    case OptimizerKind::lion:
      return kernels::OptimizerKind::lion;
    case OptimizerKind::lamb:
      return kernels::OptimizerKind::lamb;
    case OptimizerKind::muon:
      return kernel_kind(rest_of(options));
  }
  throw Error("optimizer: no such kind");
}

bool has_momentum(OptimizerKind kind) {
  return kind == OptimizerKind::sgd || kind == OptimizerKind::sgd_nesterov || kind == OptimizerKind::rmsprop ||
         kind == OptimizerKind::muon;
}

kernels::UpdateGroup group_values(const OptimizerOptions& options) {
  return {.learning_rate = options.learning_rate,
          .weight_decay = options.weight_decay,
          .beta1 = has_momentum(options.kind) ? options.momentum : options.beta1,
          .beta2 = options.kind == OptimizerKind::rmsprop ? options.alpha : options.beta2,
          .epsilon = options.epsilon,
          .dampening = options.dampening};
}

UpdateValues update_values(const OptimizerOptions& options) {
  return {options.learning_rate, options.weight_decay, has_momentum(options.kind) ? options.momentum : options.beta1};
}

void assign_values(OptimizerOptions& options, const UpdateValues& values) {
  options.learning_rate = values.learning_rate;
  options.weight_decay = values.weight_decay;
  (has_momentum(options.kind) ? options.momentum : options.beta1) = values.momentum;
}

OptimizerOptions rest_of(const OptimizerOptions& muon) {
  return muon.rest ? *muon.rest : OptimizerOptions{.kind = OptimizerKind::adamw};
}

int moment_slots(const OptimizerOptions& options) {
  if (options.rule) return options.rule->slots();
  switch (options.kind) {
    case OptimizerKind::sgd:
    case OptimizerKind::sgd_nesterov:
      return options.momentum > 0.0f || options.schedules.momentum ? 1 : 0;
    case OptimizerKind::muon:
      return std::max(2, moment_slots(rest_of(options)));
    default:
      return kernels::moments_of(kernel_kind(options));
  }
}

std::optional<PrecisionConflict> conflict_with(const OptimizerOptions& options, Precision precision) {
  if (precision.keeps_masters()) return std::nullopt;
  const auto conflict = [&](std::string_view key, const std::string& what) -> PrecisionConflict {
    return {key, fmt::format("{} float32 weights, of which precision {} keeps none; expected precision float32, "
                             "mixed_float16 or mixed_bfloat16",
                             what, to_string(precision))};
  };
  if (options.rule) return conflict("optimizer", fmt::format("the rule '{}' moves", options.rule->kind()));
  if (options.ema) return conflict("ema", "ema averages");
  if (options.prune) return conflict("prune", "prune masks");
  return std::nullopt;
}

void check_options(const OptimizerOptions& o) {
  require(o.learning_rate >= 0.0f, "learning_rate must not be negative", o.learning_rate);
  require(o.weight_decay >= 0.0f, "weight_decay must not be negative", o.weight_decay);
  require(o.momentum >= 0.0f && o.momentum < 1.0f, "momentum must be in [0, 1)", o.momentum);
  require(o.dampening >= 0.0f && o.dampening <= 1.0f, "dampening must be in [0, 1]", o.dampening);
  require(o.dampening == 0.0f || o.kind != OptimizerKind::sgd_nesterov, "Nesterov's momentum has no dampening",
          o.dampening);
  require(o.beta1 >= 0.0f && o.beta1 < 1.0f, "beta1 must be in [0, 1)", o.beta1);
  require(o.beta2 >= 0.0f && o.beta2 < 1.0f, "beta2 must be in [0, 1)", o.beta2);
  require(o.alpha >= 0.0f && o.alpha < 1.0f, "alpha must be in [0, 1)", o.alpha);
  require(o.epsilon > 0.0f, "epsilon must be positive", o.epsilon);
  require(o.clip_norm >= 0.0f, "clip_norm must not be negative", o.clip_norm);
  require(o.clip_value >= 0.0f, "clip_value must not be negative", o.clip_value);
  require(o.initial_loss_scale >= 1.0f, "initial_loss_scale must be at least 1", o.initial_loss_scale);
  if (o.kind != OptimizerKind::muon) return;
  check_muon(o.muon);
  check_rest(rest_of(o));
}

}  // namespace bantam
