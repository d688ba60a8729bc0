// The files of a step's profile, made from the same recording as its tables.
#pragma once

#include <string>

#include "bantam/cli/options/run_names.h"
#include "bantam/run/profile/step_profile.h"

namespace bantam::cli {

/// One self-contained HTML page: the sentence, a flame chart of a step, its timeline, tables.
std::string step_page(const StepProfile& profile);

/// For Perfetto and chrome://tracing (the JSON trace event format): a slice a step, phase, operation, kernel and gap of
/// every recorded step, and on the CPU a track a thread.
std::string step_trace_json(const StepProfile& profile);

}  // namespace bantam::cli
