// `bantam bench`: the group of measuring subcommands, and the rows that they have in common.
#include "bantam/cli/bench.h"

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam::cli {

void add_bench_options(CLI::App& command, BenchOptions& options) {
  add_common_options(command, options.common);
  command.add_option("--batch-sizes", options.batch_sizes,
                     "Comma-separated, e.g. 16,128,1024;\ndefault: the config's batch size, or 16");
  command.add_option("--precision", options.precisions,
                     "Comma-separated: float32, mixed_float16,\nmixed_bfloat16; default: the config's");
  command.add_option("--recompute", options.recompute,
                     "Comma-separated: none, all, or names of\nblocks (a+b); default: the config's");
  command.add_option("--seconds", options.seconds, "Measuring time a row")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_flag("--json", options.json, "One JSON object a row, bytes exact");
}

std::vector<StepCase> bench_cases(const RunConfig& config, const BenchOptions& options) {
  std::vector<std::int64_t> batches{config.data ? config.data->pipeline.batch_size : 16};
  if (!options.batch_sizes.empty()) batches = parse_integers("--batch-sizes", options.batch_sizes);
  std::vector<Precision> precisions{config.precision};
  if (!options.precisions.empty()) {
    precisions.clear();
    for (const std::string& text : parse_texts("--precision", options.precisions))
      precisions.push_back(parse_precision(text, config.device));
  }
  std::vector<RecomputeOptions> recomputes{config.recompute};
  if (!options.recompute.empty()) {
    recomputes.clear();
    for (const std::string& text : parse_texts("--recompute", options.recompute)) {
      recomputes.push_back(parse_recompute(text));
      (void)lower(config.model.graph, recomputes.back());  // throws for a name that is not there, before anything runs
    }
  }
  std::vector<bool> planned{true};
  if (!options.modes.empty()) {
    planned.clear();
    for (const std::string& mode : parse_texts("--mode", options.modes)) {
      if (mode != "eager" && mode != "planned")
        throw ConfigError(fmt::format("--mode: expected eager or planned, got '{}'", mode));
      planned.push_back(mode == "planned");
    }
  }
  std::vector<StepCase> cases;
  for (const Precision precision : precisions)
    for (const RecomputeOptions& recompute : recomputes)
      for (const std::int64_t batch : batches)
        for (const bool is_planned : planned) cases.push_back({batch, precision, recompute, is_planned});
  return cases;
}

std::string short_name(Precision precision) {
  switch (precision.kind) {
    case PrecisionKind::mixed_float16:
      return "f16";
    case PrecisionKind::mixed_bfloat16:
      return "bf16";
    case PrecisionKind::float32:
      break;
  }
  return "f32";
}

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

std::string compact_rate(double per_second) {
  return per_second < 99999.5 ? fmt::format("{:.0f}", per_second) : fmt::format("{:.0f}k", per_second / 1e3);
}

void add_bench(CLI::App& app, Action& action) {
  CLI::App* bench = app.add_subcommand("bench", "Measure steps, their memory, and allocators");
  bench->require_subcommand(1);
  add_bench_step(*bench, action);
  add_bench_memory(*bench, action);
  add_bench_allocator(*bench, action);
}

}  // namespace bantam::cli
