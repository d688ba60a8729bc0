// A run's schedules as text: a line of bars for each value that has one.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "bantam/run/plan.h"

namespace bantam::cli {

/// A line or two for each scheduled value over the run that `config` describes, in batches of `batch` samples; empty
/// where no value has a schedule. Nothing is read: the data set's size is known from its format.
std::string schedule_curves(const run::RunConfig& config, std::int64_t batch);

/// The same as numbers: {"value": "learning_rate", "updates": …, "points": [[update, value], …]}.
nlohmann::ordered_json schedule_points(const run::RunConfig& config, std::int64_t batch);

}  // namespace bantam::cli
