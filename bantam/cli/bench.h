// What `bench step` and `bench memory` share: their options, and the rows that follow from them.
#pragma once

#include <string>
#include <vector>

#include "bantam/cli/measure.h"
#include "bantam/cli/options.h"

namespace bantam::cli {

struct BenchOptions {
  CommonOptions common;
  std::string batch_sizes, precisions, recompute, modes;  ///< lists, as typed
  double seconds = 1.5;
  bool json = false;
  bool bytes = false;
};

void add_bench_options(CLI::App& command, BenchOptions& options);
/// One case a row: by precision, then recompute, then batch, then mode. Throws ConfigError.
std::vector<StepCase> bench_cases(const RunConfig& config, const BenchOptions& options);
/// "f32", "f16", "bf16": the peers' short names, for narrow tables.
std::string short_name(Precision precision);
/// "2.65M", "384K", "12B": at most five characters, powers of 1024.
std::string compact_bytes(std::uint64_t bytes);
/// "2510", "123k".
std::string compact_rate(double per_second);

void add_bench_step(CLI::App& bench, Action& action);
void add_bench_memory(CLI::App& bench, Action& action);
void add_bench_allocator(CLI::App& bench, Action& action);

}  // namespace bantam::cli
