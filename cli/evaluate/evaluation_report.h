// The report of `bantam evaluate` on an evaluation, as text and as JSON.
#pragma once

#include <cstddef>
#include <string>

#include "bantam/base/json.h"
#include "bantam/cli/options/run_names.h"
#include "bantam/run/evaluate/evaluation.h"
#include "bantam/run/trained/trained_model.h"

namespace bantam::cli {

/// Names of classes are as long as lines of so many columns allow; names of files, and matrices of many classes, may
/// be longer.
std::string text_of(const Evaluation& evaluation, const TrainedModel& model, std::size_t columns = 80);

/// Metrics by the names that metrics.jsonl has, without a prefix; classes, confusion_matrix, most_confused.
nlohmann::ordered_json json_of(const Evaluation& evaluation, const TrainedModel& model);

}  // namespace bantam::cli
