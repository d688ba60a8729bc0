// A memory curve as a table, as JSON and as a page, for `plan --curve` and `bench step --curve`.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include "bantam/base/json.h"
#include "bantam/cli/options/run_names.h"
#include "bantam/run/fit/step_grid.h"
#include "bantam/run/memory_curve.h"

namespace bantam::cli {

/// Milliseconds an update, measured, by the point's place in the curve; without those that were not.
using MeasuredCurve = std::map<std::size_t, double>;

/// `--curve`, and the page that it writes.
struct CurveFlags {
  bool on = false, overwrite = false;
  std::string out;
};
/// Adds `--curve` with a description, `--out` and `--overwrite`. Returns the first.
CLI::Option* add_curve_flags(CLI::App& command, CurveFlags& flags, const std::string& description);

struct CurveText {
  const RunConfig& config;
  const PlanTarget& target;
  const run::MemoryCurve& curve;
  const MeasuredCurve measured = {};  ///< empty: nothing was measured
  std::uint64_t bound_bytes = 0;      ///< that points were to fit; 0: none
};

/// The curve of the batches that the grid names, else of those around the configuration's, in the one precision that it
/// names, else the configuration's; and the configuration with what is decided. A line to stderr a batch. Each point's
/// arena is solved within so many seconds. Throws ConfigError where the grid says what to recompute, or names several
/// precisions.
std::pair<RunConfig, run::MemoryCurve> curve_of(const RunConfig& config, const PlanTarget& target, const StepGrid& grid,
                                                double arena_seconds);
/// Prints the table, or an object a line; writes the page where `out` names a file.
void show_curve(const CurveText& text, bool json, const std::string& out);

/// The best points by falling bytes, what fits in the memory of usual cards, and the knee: at most 80 columns.
std::string curve_table(const CurveText& text);
/// An object a point.
nlohmann::ordered_json curve_json(const CurveText& text);
/// One HTML file that needs no other and no script.
std::string curve_page(const CurveText& text);

}  // namespace bantam::cli
