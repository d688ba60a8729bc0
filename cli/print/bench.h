// Shared by `bench step` and `bench memory`: their options, and the rows that follow from them.
#pragma once

#include <string>
#include <vector>

#include "bantam/base/json.h"
#include "bantam/cli/options/options.h"
#include "bantam/run/bench/measure.h"
#include "bantam/run/fit/plan_target.h"
#include "bantam/run/fit/step_grid.h"

namespace bantam::cli {

struct BenchOptions {
  CommonOptions common;
  std::string batch_sizes, precisions, recompute, modes;  ///< lists, as typed
  double seconds = 1.5;
  bool json = false;
  bool bytes = false;
  bool whole_run = false;  ///< `auto` fits all that `bantam train` holds, where the configuration has data
};

void add_bench_options(CLI::App& command, BenchOptions& options);
/// The settings that the flags vary. Throws ConfigError naming the flag; `bytes`: as step_cases.
StepGrid read_grid(const RunConfig& config, const BenchOptions& options, std::uint64_t bytes);
/// One case a row: by precision, then recompute, then batch, then mode. `auto` as recompute (the default where there
/// are bytes to fit and the configuration says nothing) is the policy of least work that fits what the configuration
/// allows the target's pool; a batch size that is `auto` is decided for the target. Throws ConfigError, and OutOfMemory
/// where no batch fits.
std::vector<StepCase> bench_cases(const RunConfig& config, const BenchOptions& options, const PlanTarget& target);
/// Adds to a row whose recompute the program chose its predicted extra time beside the measured one, for which the step
/// without recompute is measured too. Adds both to `json`; returns two lines, each after a newline. "" for other rows.
std::string add_extra(nlohmann::ordered_json& json, const RunConfig& config, const StepCase& row,
                      const StepMeasurement& measured, const BenchOptions& options);
/// "f32", "f16", "bf16": the peers' short names, for narrow tables.
std::string short_name(Precision precision);
/// A row's recompute in at most a few words: "auto" where the program chose it.
std::string policy_name(const StepCase& step);
/// "2.65M", "384K", "12B": at most five characters, powers of 1024.
std::string compact_bytes(std::uint64_t bytes);
/// "2510", "123k": whole where that needs at most so many digits.
std::string compact_rate(double per_second, int digits = 5);

void add_bench_step(CLI::App& bench, Action& action);
void add_bench_memory(CLI::App& bench, Action& action);
void add_bench_data(CLI::App& bench, Action& action);
void add_bench_predict(CLI::App& bench, Action& action);
void add_bench_allocator(CLI::App& bench, Action& action);

}  // namespace bantam::cli
