// Schedules: the values of an optimizer over a run, and the table of those that a configuration may name.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/base/config/registry.h"
#include "bantam/engine/optimizers/update_rule.h"

BANTAM_API_BEGIN
namespace bantam {
struct Metrics;

/// The part of a schedule that evaluations move: its value stays until the next one. Used by the thread that trains.
class EvaluatedSchedule {
 public:
  virtual ~EvaluatedSchedule() = default;
  /// The metric that it reads, which the evaluation must have: "loss".
  virtual std::string_view metric() const = 0;
  /// Called after each evaluation, before the next update.
  virtual void evaluated(const Metrics& validation) = 0;
  /// The numbers that checkpoints keep of it; `set_state` throws DataError where the numbers are not such.
  virtual std::vector<double> state() const = 0;
  virtual void set_state(const std::vector<double>& numbers) = 0;
};

/// The value of update `update` (a learning rate, say), counted from 0 over all epochs, whether updates were done or
/// skipped. Pure, but for what evaluations move: a resumed run asks for the same numbers. Not negative. Empty: the
/// optimizer's own value.
class Schedule {
 public:
  Schedule() = default;
  /// Any function of the update; `evaluated`: what it reads that evaluations move.
  template <class Function>
  requires(!std::same_as<std::remove_cvref_t<Function>, Schedule> &&
           std::is_invocable_r_v<float, Function&, std::int64_t>)
      Schedule(Function value, std::shared_ptr<EvaluatedSchedule> evaluated = nullptr)
      : value_(std::move(value)), evaluated_(std::move(evaluated)) {}

  float operator()(std::int64_t update) const { return value_(update); }
  explicit operator bool() const { return static_cast<bool>(value_); }
  /// Null: evaluations do not move it.
  const std::shared_ptr<EvaluatedSchedule>& evaluated() const { return evaluated_; }

 private:
  std::function<float(std::int64_t update)> value_;
  std::shared_ptr<EvaluatedSchedule> evaluated_;
};

/// The facts of a run from which its schedules are made.
struct ScheduleFacts {
  float learning_rate = 0;   ///< the optimizer's; for a schedule of another value, the optimizer's value of that
  std::int64_t updates = 0;  ///< of the whole run
  std::int64_t updates_per_epoch = 0;
};

/// Makes a schedule for a run: what a configuration's text becomes.
using ScheduleMaker = std::function<Schedule(const ScheduleFacts& facts)>;

/// Built-in: constant, linear, cosine, polynomial, step, multi_step, exponential, one_cycle, piecewise, inverse_sqrt
/// and on_plateau (docs/tasks/SCHEDULES.md). Register before the first configuration is read:
///
///     schedules().add("halves", [](ConfigMap& options) -> ScheduleMaker {
///       const auto every = options.integer("epochs", {.min = 1}, 10);
///       return [every](const ScheduleFacts& run) -> Schedule {
///         return [=](std::int64_t n) { return std::ldexp(run.learning_rate, -int(n / run.updates_per_epoch / every));
///         };
///       };
///     });
Registry<Reader<ScheduleMaker>>& schedules();

/// `schedule: NAME` or `schedule: {NAME: {options}}`; empty where the key is missing. Throws ConfigError.
ScheduleMaker read_schedule(ConfigMap& section);

/// A value of an optimizer's options, and its schedule, if it has one.
struct ScheduledNumber {
  float value = 0;
  ScheduleMaker schedule = {};
};

/// `key: NUMBER`, or `key: {schedule: NAME, peak: NUMBER, …}` with the schedule's options beside. For readers of
/// optimizers. Throws ConfigError.
ScheduledNumber read_scheduled_number(ConfigMap& options, const ConfigKey& key, NumberRange range, double otherwise);

/// Schedules of an optimizer's values; empty: the value of its options.
struct OptimizerSchedules {
  ScheduleMaker learning_rate, weight_decay;
  ScheduleMaker momentum;  ///< beta1 of rules that have one
  bool any() const { return learning_rate || weight_decay || momentum; }
};

/// The schedules of one run; empty where a value has none.
struct UpdateSchedules {
  Schedule learning_rate, weight_decay, momentum;

  bool any() const { return learning_rate || weight_decay || momentum; }
  /// The values of an update; `otherwise` where there is no schedule.
  UpdateValues at(std::int64_t update, UpdateValues otherwise) const;
  /// Returns the schedules that evaluations move, in the order above.
  std::vector<std::shared_ptr<EvaluatedSchedule>> evaluated() const;
};

}  // namespace bantam
BANTAM_API_END
