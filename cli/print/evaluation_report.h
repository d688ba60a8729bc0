// What `bantam evaluate` tells, as text and as JSON.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "bantam/cli/config/run_names.h"
#include "bantam/run/use/evaluation.h"
#include "bantam/run/use/trained_model.h"

namespace bantam::cli {

/// In at most 80 columns but for names of files, classes, and matrices of many classes.
std::string text_of(const Evaluation& evaluation, const TrainedModel& model);

/// Metrics by the names that metrics.jsonl has, without a prefix; classes, confusion_matrix, most_confused.
nlohmann::ordered_json json_of(const Evaluation& evaluation, const TrainedModel& model);

}  // namespace bantam::cli
