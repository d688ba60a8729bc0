// The report of `bantam profile step` on a step's profile, as text and as JSON.
#pragma once

#include <cstddef>
#include <string>

#include "bantam/base/json.h"
#include "bantam/run/profile/step_profile.h"

namespace bantam::cli {

/// How wide lines are.
struct TextColumns {
  std::size_t text = 80, table = 120;
};

/// Tables of the longest operations, kernels and gaps, `rows` of each (0: all); the rest is added up in a row. Names
/// are cut where lines would be longer.
std::string text_of(const run::StepProfile& profile, std::size_t rows, TextColumns columns = {});

/// All figures: of the step, by operation, kernel, gap and thread, the changes; times in microseconds of one step.
nlohmann::ordered_json json_of(const run::StepProfile& profile);

/// "the driver's trace of captured steps", "events between the kernel calls of steps that are not captured
/// (libcupti.so.13 is not installed)".
std::string method_words(run::RecordingMethod method, const std::string& why_not_traced);

}  // namespace bantam::cli
