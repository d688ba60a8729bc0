// Schedule: the learning rate of each update, a pure function of its number.
#pragma once

#include <cstdint>
#include <functional>

#include "bantam/base/config/config_registry.h"

namespace bantam {

/// The learning rate of update `update`, counted from 0 over all epochs, whether updates were done or skipped. Pure: a
/// resumed run asks for the same numbers again. Not negative. Empty: the optimizer's own rate.
using Schedule = std::function<float(std::int64_t update)>;

/// What a schedule is made from once a run is known.
struct ScheduleFacts {
  float learning_rate = 0;   ///< the optimizer's
  std::int64_t updates = 0;  ///< of the whole run
  std::int64_t updates_per_epoch = 0;
};

/// Makes a schedule for a run: what a configuration's text becomes.
using ScheduleMaker = std::function<Schedule(const ScheduleFacts& facts)>;

/// Built-in: constant, the optimizer's rate. Register before the first configuration is read:
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

}  // namespace bantam
