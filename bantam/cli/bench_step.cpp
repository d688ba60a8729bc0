// `bantam bench step`: milliseconds a training step, the rows of peers/torch_step.py.
#include <cstdio>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/cli/bench.h"
#include "bantam/cli/fitting.h"
#include "bantam/cli/oom_message.h"

namespace bantam::cli {
namespace {

constexpr const char* kAbout =
    "Time training steps (forward, backward, update) on random images that are\n"
    "already on the device: no data set is read. A row is the median of windows of\n"
    "50 ms or more. Memory is that of a step with one batch resident. Planned steps\n"
    "take it at offsets of one arena, eager ones as they go; captured ones (CUDA) are\n"
    "planned, recorded once and run several a launch.";

int bench_step(const BenchOptions& options) {
  const RunConfig config = read_config(options.common);
  require_device(config);
  const std::vector<StepCase> cases = bench_cases(config, options, bytes_to_fit(config));
  if (!options.json)
    fmt::print("{} on {}\n{:>5}  {:14}  {:9}  {:8}  {:>9}  {:>9}  {:>6}  {:>6}\n", config.model.name,
               to_string(config.device), "batch", "precision", "recompute", "mode", "ms/step", "images/s", "peak",
               "pool");
  bool any = false;
  std::optional<OutOfMemory> refused;  // the first
  for (const StepCase& row : cases) {
    nlohmann::ordered_json json = describe(config, row);
    const std::string_view mode = to_string(row.mode);
    json["mode"] = mode;
    std::string cells =
        fmt::format("{:>5}  {:14}  {:9}  {:8}", row.batch, to_string(row.precision), policy_name(row), mode);
    try {
      const StepMeasurement measured = measure_step(config, row, options.common.threads, options.seconds);
      any = true;
      add_timing(json, measured);
      add_memory(json, measured.memory);
      cells += fmt::format("  {:>9.3f}  {:>9.0f}  {:>6}  {:>6}", measured.ms_per_step, measured.images_per_s,
                           compact_bytes(measured.memory.peak_bytes), compact_bytes(measured.memory.peak_pool_bytes));
      cells += add_extra(json, config, row, measured, options);
    } catch (const OutOfMemory& error) {
      if (!refused) refused = explain_step(error, config, row);
      json["error"] = "does not fit";
      json["needed_bytes"] = plan_step(config.model.graph, step_plan_options(config, row)).pool_bytes;
      cells += fmt::format("  does not fit (needs {})", compact_bytes(json["needed_bytes"].get<std::uint64_t>()));
    }
    fmt::print("{}\n", options.json ? json.dump() : cells);
    std::fflush(stdout);
  }
  if (!any && refused) throw *refused;
  return 0;
}

}  // namespace

void add_bench_step(CLI::App& bench, Action& action) {
  CLI::App* command = bench.add_subcommand("step", "Time training steps");
  command->footer(kAbout);
  const auto options = std::make_shared<BenchOptions>();
  add_bench_options(*command, *options);
  command->add_option("--mode", options->modes,
                      "Comma-separated: eager, planned, captured;\ndefault: as train runs them");
  command->callback([&action, options] { action = [options] { return bench_step(*options); }; });
}

}  // namespace bantam::cli
