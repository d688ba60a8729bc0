// `bantam bench step`: milliseconds a training step, rows that can stand beside a PyTorch program's.
#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/bench/bench_gpus.h"
#include "bantam/cli/options/written_file.h"
#include "bantam/cli/plan/memory_curve.h"
#include "bantam/cli/print/bench.h"
#include "bantam/cli/print/oom_message.h"
#include "bantam/cli/print/output.h"
#include "bantam/cli/print/step_json.h"
#include "bantam/run/bench/step_limits.h"
#include "bantam/run/fit/plan_target.h"

namespace bantam::cli {
namespace {

constexpr const char* kAboutBenchStep =
    "Time training steps (forward, backward, update) on random images that are\n"
    "already on the device: no data set is read. A row is the median of windows of\n"
    "50 ms or more. Memory is that of a step with one batch resident. Planned steps\n"
    "allocate at offsets of one arena, eager ones on demand; captured ones (CUDA) are\n"
    "planned, recorded once and run several a launch. The floor is the longest of:\n"
    "bytes that must move over the copy rate, operations over the GEMM rate,\n"
    "kernels over what each adds to a chain; all rates are measured in this call.\n"
    "--curve measures the best points of `plan --curve`, to stand beside what is\n"
    "predicted; --out writes both as a page.\n"
    "--gpus measures the step on so many GPUs beside that on one, a batch each: the\n"
    "exchange of gradients alone, and how much of it the step hides.\n"
    "Example: bantam bench step configs/mobilenet_v1.yaml --batch-sizes 16,64";

/// Rates by precision, each measured when it is first asked for.
class Rates {
 public:
  explicit Rates(const RunConfig& config, int threads) : config_(config), threads_(threads) {}
  const std::optional<MeasuredRates>& of(Precision precision) {
    const auto [place, fresh] = known_.try_emplace(precision.kind);
    if (fresh) place->second = measure_rates(config_, precision, threads_);
    return place->second;
  }

 private:
  const RunConfig& config_;
  int threads_;
  std::map<PrecisionKind, std::optional<MeasuredRates>> known_;
};

/// The cells after the mode, and the JSON's figures.
std::string measured_cells(nlohmann::ordered_json& json, const RunConfig& config, const StepCase& row,
                           const StepMeasurement& measured, const std::optional<MeasuredRates>& rates) {
  add_timing(json, measured);
  add_memory(json, measured.memory);
  std::string cells = fmt::format(" {:>8.4g} {:>8} {:>6} {:>5}", measured.ms_per_step,
                                  compact_rate(measured.images_per_s, 7), compact_bytes(measured.memory.peak_bytes),
                                  measured.kernels > 0 ? fmt::format("{:.0f}", measured.kernels) : "-");
  if (!rates) return cells;
  const StepLimits limits = step_limits(config, row, measured, *rates);
  add_limits(json, limits, measured.ms_per_step);
  return cells + fmt::format(" {:>7.3g} {:5} {:>5.1f}", limits.floor_ms(), limits.bound(),
                             measured.ms_per_step / limits.floor_ms());
}

int bench_step(const BenchOptions& options) {
  const RunConfig config = read_config(options.common);
  require_device(config);
  const std::vector<StepCase> cases = bench_cases(config, options, measured_target(config));
  if (!options.json)
    print_out("{} on {}\n{:>5} {:4} {:9} {:8} {:>8} {:>8} {:>6} {:>5} {:>7} {:5} {:>5}\n",
              printable_line(config.model.name), to_string(config.device), "batch", "type", "recompute", "mode",
              "ms/step", "images/s", "peak", "kern.", "floor", "bound", "ratio");
  Rates rates(config, options.common.threads);
  bool any = false;
  std::optional<OutOfMemory> refused;  // the first
  for (const StepCase& row : cases) {
    nlohmann::ordered_json json = describe(config, row);
    const std::string_view mode = to_string(row.mode);
    json["mode"] = mode;
    std::string cells =
        fmt::format("{:>5} {:4} {:9} {:8}", row.batch, short_name(row.precision), policy_name(row), mode);
    try {
      const StepMeasurement measured = measure_step(config, row, options.common.threads, options.seconds);
      any = true;
      cells += measured_cells(json, config, row, measured, rates.of(row.precision));
      cells += add_extra(json, config, row, measured, options);
    } catch (const OutOfMemory& error) {
      if (!refused) refused = explain_step(error, config, row);
      json["error"] = "does not fit";
      json["needed_bytes"] = plan_step(config.model.graph, step_plan_options(config, row)).pool_bytes;
      cells += fmt::format("  does not fit (needs {})", compact_bytes(json["needed_bytes"].get<std::uint64_t>()));
    }
    print_out("{}\n", options.json ? json_text(json) : cells);
    std::fflush(stdout);
  }
  if (!any && refused) throw *refused;
  return 0;
}

/// For the arena of each point's plan; `--seconds` is the time of a measurement here.
constexpr double kArenaSeconds = 0.2;

/// The milliseconds of each best point that fits; on a terminal and in a log a line each, as it comes.
MeasuredCurve measure_curve(const RunConfig& config, const run::MemoryCurve& curve, const BenchOptions& options) {
  MeasuredCurve measured;
  for (std::size_t i = 0; i < curve.points.size(); ++i) {
    const run::MemoryCurve::Point& point = curve.points[i];
    if (!point.best || !point.fits) continue;
    StepCase step = point.step;
    step.mode = parse_step_mode(options.modes.empty() ? "auto" : options.modes, config.device);
    try {
      measured[i] = measure_step(config, step, options.common.threads, options.seconds).ms_per_step;
      print_error("batch {}, {}: {:.4g} ms, {:.4g} predicted\n", step.batch, format_byte_size(point.needed_bytes),
                  measured[i], 1e3 * point.step_seconds);
    } catch (const OutOfMemory& error) {
      print_error("batch {}, {}: {}\n", step.batch, format_byte_size(point.needed_bytes), error.what());
    }
  }
  return measured;
}

int bench_curve(const BenchOptions& options, const CurveFlags& flags) {
  const RunConfig config = read_config(options.common);
  require_device(config);
  const PlanTarget target = measured_target(config);
  require_place("--out", flags.out, flags.overwrite);
  const auto [decided, curve] = curve_of(config, target, read_grid(config, options, 0), kArenaSeconds);
  const MeasuredCurve measured = measure_curve(decided, curve, options);
  show_curve({decided, target, curve, measured, plan_fit(decided.memory, target).bytes}, options.json, flags.out);
  return measured.empty() ? 4 : 0;
}

}  // namespace

void add_bench_step(CLI::App& bench, Action& action) {
  CLI::App* command = bench.add_subcommand("step", "Time training steps");
  command->footer(kAboutBenchStep);
  const auto options = std::make_shared<BenchOptions>();
  const auto gpus = std::make_shared<std::string>();
  add_bench_options(*command, *options);
  command->add_option("--mode", options->modes,
                      "Comma-separated: eager, planned, captured;\ndefault: as train runs them");
  command->add_option("--gpus", *gpus, "Numbers of GPUs, comma-separated: 1,2,4; the batch\nis each GPU's")
      ->type_name("N,…")
      ->excludes("--device");
  const auto curve = std::make_shared<CurveFlags>();
  add_curve_flags(*command, *curve, "Measure the trade of memory for time that plan --curve\npredicts")
      ->excludes("--gpus");
  command->callback([&action, options, gpus, curve] {
    action = [options, gpus, curve] {
      if (curve->on) return bench_curve(*options, *curve);
      return gpus->empty() ? bench_step(*options) : bench_gpus(*options, *gpus);
    };
  });
}

}  // namespace bantam::cli
