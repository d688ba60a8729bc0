// The results of a sweep, as a table or as JSON.
#pragma once

#include <string>

#include "bantam/base/json.h"
#include "bantam/cli/options/run_names.h"
#include "bantam/run/sweep/sweep_folder.h"
#include "bantam/run/sweep/sweep_summary.h"

namespace bantam::cli {

struct SweepReport {
  const Sweep& sweep;
  const SweepSummary& summary;
  bool stopped = false;  ///< on request
  double seconds = 0;    ///< of this session
  Spread wall = {};      ///< seconds of each run of this session, from its configuration to its saved weights
};

/// A line a setting, the best first; of a sweep with one setting a line a seed, and their mean. Then runs that failed
/// or are left, and the best setting as it is typed. Several lines, each ended by a newline.
std::string sweep_text(const SweepReport& report);

/// metric, mode, watched, settings (the best first, each with its values' spread and runs), stopped, out.
nlohmann::ordered_json sweep_json(const SweepReport& report);

}  // namespace bantam::cli
