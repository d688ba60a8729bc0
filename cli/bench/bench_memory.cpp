// `bantam bench memory`: where a step's bytes are at its peak, by category, adding up to the byte.
#include <array>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/print/bench.h"
#include "bantam/cli/print/oom_message.h"
#include "bantam/cli/print/output.h"
#include "bantam/cli/print/step_json.h"
#include "bantam/run/fit/plan_target.h"

namespace bantam::cli {
namespace {

constexpr const char* kAboutBenchMemory =
    "Measure where a training step's bytes are at the moment of its peak. The\n"
    "categories add up to the peak exactly; diff is the measured peak less the\n"
    "planned one (`bantam plan`), in bytes. Each row has a runtime of its own, one\n"
    "batch resident; steps run planned. A row that does not fit the device's limit\n"
    "says what pool it would need.\n"
    "Example: bantam bench memory configs/quickstart.yaml --batch-sizes 16,64";

constexpr std::array<const char*, kCategories> kShort = {"param", "grad", "optim", "activ", "work", "input", "other"};
constexpr std::array<const char*, kCategories> kLong = {"parameters", "gradients", "optimizer", "activations",
                                                        "workspace",  "input",     "other"};

/// How wide a column is, and how sizes are written in it.
struct Layout {
  int width;
  bool bytes;
  std::string cell(std::uint64_t size) const {
    return fmt::format(" {:>{}}", bytes ? fmt::format("{}", size) : compact_bytes(size), width);
  }
};

std::string header(const Layout& layout) {
  std::string line = fmt::format("{:>5} {:>4} {:>5}", "batch", "prec", "rec");
  for (std::size_t i = 0; i < kCategories; ++i)
    line += fmt::format(" {:>{}}", layout.bytes ? kLong[i] : kShort[i], layout.width);
  for (const char* title : {"peak", "pool"}) line += fmt::format(" {:>{}}", title, layout.width);
  return line + fmt::format(" {:>4} {:>4}", "diff", "im/s");
}

/// The measured peak less the planned one: 0 where the plan was right.
std::string difference(std::uint64_t measured, std::uint64_t planned) {
  return fmt::format("{}", static_cast<std::int64_t>(measured) - static_cast<std::int64_t>(planned));
}

std::string memory_cells(const Layout& layout, const StepMeasurement& measured, std::uint64_t planned_peak) {
  std::string cells;
  for (const std::uint64_t size : measured.memory.by_category_at_peak.bytes) cells += layout.cell(size);
  cells += layout.cell(measured.memory.peak_bytes) + layout.cell(measured.memory.peak_pool_bytes);
  return cells + fmt::format(" {:>4} {:>4}", difference(measured.memory.peak_bytes, planned_peak),
                             compact_rate(measured.images_per_s, 4));
}

/// Prints one row; returns why it does not fit, where it does not.
std::optional<OutOfMemory> print_row(const RunConfig& config, const StepCase& row, const BenchOptions& options,
                                     const Layout& layout) {
  nlohmann::ordered_json json = describe(config, row);
  std::string cells = fmt::format("{:>5} {:>4} {:>5.5}", row.batch, short_name(row.precision), policy_name(row));
  std::optional<OutOfMemory> refused;
  try {
    const StepMeasurement measured = measure_step(config, row, options.common.threads, options.seconds);
    add_timing(json, measured);
    add_memory(json, measured.memory);
    const std::uint64_t planned_peak = step_peak(config.model.graph, step_plan_options(config, row));
    json["planned_peak_bytes"] = planned_peak;
    cells += memory_cells(layout, measured, planned_peak);
    cells += add_extra(json, config, row, measured, options);
  } catch (const OutOfMemory& error) {
    refused = error;
    const std::uint64_t needed = plan_step(config.model.graph, step_plan_options(config, row)).pool_bytes;
    json["error"] = "does not fit";
    json["needed_bytes"] = needed;
    if (error.facts().limit_bytes > 0) json["limit_bytes"] = error.facts().limit_bytes;
    cells +=
        fmt::format(" does not fit (needs {})", options.bytes ? fmt::format("{}", needed) : format_byte_size(needed));
  }
  print_out("{}\n", options.json ? json_text(json) : cells);
  std::fflush(stdout);
  return refused;
}

int bench_memory(const BenchOptions& options) {
  const RunConfig config = read_config(options.common);
  require_device(config);
  const std::vector<StepCase> cases = bench_cases(config, options, measured_target(config));
  const Layout layout{options.bytes ? 12 : 5, options.bytes};
  if (!options.json)
    print_out("{} on {}, bytes at the peak\n{}\n", printable_line(config.model.name), to_string(config.device),
              header(layout));
  std::vector<StepCase> refused;
  std::optional<OutOfMemory> reason;  // of the first
  for (const StepCase& row : cases)
    if (auto error = print_row(config, row, options, layout)) {
      if (!reason) reason = std::move(error);
      refused.push_back(row);
    }
  if (!options.json && !options.bytes) print_out("K, M, G: powers of 1024; --bytes prints them exactly.\n");
  if (reason && refused.size() == cases.size()) throw explain_step(*reason, config, refused.front());
  return 0;
}

}  // namespace

void add_bench_memory(CLI::App& bench, Action& action) {
  CLI::App* command = bench.add_subcommand("memory", "Memory of training steps by category");
  command->footer(kAboutBenchMemory);
  const auto options = std::make_shared<BenchOptions>();
  options->seconds = 0.5;
  add_bench_options(*command, *options);
  command->add_flag("--bytes", options->bytes, "Exact bytes instead of units (wide lines)");
  command->callback([&action, options] { action = [options] { return bench_memory(*options); }; });
}

}  // namespace bantam::cli
