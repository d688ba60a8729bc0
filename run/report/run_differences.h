// The keys in which the configurations of several runs differ.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bantam/run/report/run_report.h"

namespace bantam::run {

/// A key that not all runs have the same value of.
struct RunDifference {
  std::string name;
  std::vector<std::string> values;  ///< a run each; empty: it has none
};

/// Keys of the configurations, in the order of the first run that has them. What some run has not at all is one
/// difference with all its keys, as `{learning_rate: 0.1, momentum: 0.9}`; where each run chose another entry of a map
/// (its optimizer), the map is: `sgd: {…}` beside `adam: {…}`.
std::vector<RunDifference> config_differences(std::span<const RunReport> reports);

}  // namespace bantam::run
