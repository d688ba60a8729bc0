// `bantam bench`: the group of measuring subcommands, and the rows that they have in common.
#include "bantam/cli/print/bench.h"

#include <cmath>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/model/lower.h"
#include "bantam/run/config/aliases.h"
#include "bantam/run/fit/decisions.h"
#include "bantam/run/fit/fitting.h"

namespace bantam::cli {

void add_bench_options(CLI::App& command, BenchOptions& options) {
  add_common_options(command, options.common);
  command.add_option("--batch-sizes,--batch-size", options.batch_sizes,
                     "Comma-separated, e.g. 16,128,1024;\ndefault: the config's batch size, or 16");
  command.add_option("--precision", options.precisions,
                     "Comma-separated: float32, mixed_float16,\nmixed_bfloat16, float16; default: the config's");
  command.add_option("--recompute", options.recompute,
                     "Comma-separated: none, inner, cheap, all, names\nof blocks (a+b), or auto: the least that fits\n"
                     "the budget; default: the config's");
  command.add_option("--seconds", options.seconds, "Measuring time a row")
      ->check(positive_seconds())
      ->capture_default_str();
  command.add_flag("--json", options.json, "One JSON object a row, bytes exact");
}

namespace {

/// Nothing stands for `auto`.
std::vector<std::optional<RecomputeOptions>> read_recomputes(const RunConfig& config, const std::string& list,
                                                             std::uint64_t bytes) {
  std::vector<std::optional<RecomputeOptions>> recomputes;
  for (const std::string& text : parse_texts("--recompute", list)) {
    if (text == "auto") {
      if (bytes == 0) throw ConfigError("--recompute auto: set memory.budget or a limit for it to fit");
      recomputes.emplace_back();
      continue;
    }
    recomputes.emplace_back(of_flag("--recompute", [&] { return parse_recompute(text); }));
    // Throws for a name that is not there, before anything runs.
    of_flag("--recompute", [&] { (void)lower(config.model.graph, *recomputes.back()); });
  }
  return recomputes;
}

}  // namespace

StepGrid read_grid(const RunConfig& config, const BenchOptions& options, std::uint64_t bytes) {
  require_model_fits(config);  // before what is wrong with flags
  StepGrid grid{.whole_run = options.whole_run};
  if (!options.precisions.empty())
    for (const std::string& text : parse_texts("--precision", options.precisions))
      grid.precisions.push_back(
          of_flag("--precision", [&] { return parse_precision(run::precision_name(text), config.device); }));
  if (!options.modes.empty())
    for (const std::string& mode : parse_texts("--mode", options.modes))
      grid.modes.push_back(of_flag("--mode", [&] { return parse_step_mode(mode, config.device); }));
  if (!options.recompute.empty()) grid.recomputes = read_recomputes(config, options.recompute, bytes);
  if (!options.batch_sizes.empty()) grid.batches = parse_integers("--batch-sizes", options.batch_sizes);
  return grid;
}

std::vector<StepCase> bench_cases(const RunConfig& config, const BenchOptions& options, const PlanTarget& target) {
  const StepGrid grid = read_grid(config, options, plan_fit(config.memory, target).chosen_pool());
  run::DecisionLog log;
  const RunConfig decided = run::decide_step(config, target, grid.batches, log);
  return step_cases(decided, grid, plan_fit(decided.memory, target).chosen_pool());
}

std::string add_extra(nlohmann::ordered_json& json, const RunConfig& config, const StepCase& row,
                      const StepMeasurement& measured, const BenchOptions& options) {
  if (!row.predicted_extra) return "";
  json["predicted_extra_percent"] = 100 * *row.predicted_extra;
  const DeviceRates rates = rates_of(config, row.precision);
  if (rates.estimate) json["estimate"] = true;
  std::string text =
      fmt::format("\n      recompute {}\n      {} time predicted, ", wrapped(row.recompute, 64, "                "),
                  predicted_percent(*row.predicted_extra, rates.estimate));
  const auto extra = measure_extra(config, row, measured, options.common.threads, options.seconds);
  if (!extra) return text + "not measured: without it the step does not fit";
  json["measured_extra_percent"] = 100 * *extra;
  return text + fmt::format("{:+.1f} % measured", 100 * *extra);
}

std::string short_name(Precision precision) {
  switch (precision.kind) {
    case PrecisionKind::mixed_float16:
      return "f16";
    case PrecisionKind::float16:
      return "f16 only";
    case PrecisionKind::mixed_bfloat16:
      return "bf16";
    case PrecisionKind::float32:
      break;
  }
  return "f32";
}

std::string policy_name(const StepCase& step) { return step.predicted_extra ? "auto" : to_string(step.recompute); }

std::string compact_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{}B", bytes);
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1023.5 && unit < 5) {
    value /= 1024;
    ++unit;
  }
  const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, digits, "BKMGTP"[unit]);
}

std::string compact_rate(double per_second, int digits) {
  return per_second < std::pow(10.0, digits) - 0.5 ? fmt::format("{:.0f}", per_second)
                                                   : fmt::format("{:.0f}k", per_second / 1e3);
}

void add_bench(CLI::App& app, Action& action) {
  CLI::App* bench = app.add_subcommand("bench", "Measure steps, inference, memory, loader");
  bench->require_subcommand(1);
  bench->footer("Example: bantam bench step configs/quickstart.yaml");
  add_bench_step(*bench, action);
  add_bench_memory(*bench, action);
  add_bench_data(*bench, action);
  add_bench_predict(*bench, action);
  add_bench_allocator(*bench, action);
}

}  // namespace bantam::cli
