// `bantam profile memory`: a few traced steps, and a folder of files that show what their memory was for.
#include <algorithm>
#include <ctime>
#include <filesystem>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/byte_size.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/options/profile_flag.h"
#include "bantam/cli/print/bench.h"
#include "bantam/cli/print/oom_message.h"
#include "bantam/cli/print/output.h"
#include "bantam/cli/profile/profile.h"
#include "bantam/cli/profile/profile_files.h"
#include "bantam/run/fit/fitting.h"

namespace bantam::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char* kAboutProfileMemory =
    "Run a few training steps on random images that are already on the device, with\n"
    "the allocator traced from its first call on, and write a folder with\n"
    "  report.html      for a browser: bytes over time, address map, largest tensors\n"
    "  trace.json       for ui.perfetto.dev or chrome://tracing\n"
    "  snapshot.pickle  for pytorch.org/memory_viz\n"
    "  events.csv       a row an allocation or free\n"
    "All agree to the byte with the allocator's statistics. With --planned no kernel\n"
    "runs, and the device need not be in this machine.\n"
    "Example: bantam profile memory configs/quickstart.yaml --out profile";

constexpr const char* kFiles[] = {"report.html", "trace.json", "snapshot.pickle", "events.csv"};
constexpr std::int64_t kMostSteps = 1000;

struct MemoryOptions {
  CommonOptions common;
  std::string steps = "2-4", out, batch_sizes, recompute;
  std::int64_t batch = 0;
  bool planned = false, overwrite = false, json = false;
};

/// From a quarter of the batch to four times of it.
std::vector<std::int64_t> curve_around(std::int64_t batch) {
  std::vector<std::int64_t> sizes;
  for (const double factor : {0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0})
    sizes.push_back(std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(batch) * factor)));
  return sizes;
}

/// The step as `bench memory` would run it: `auto` solved, and recompute chosen where there is something to fit.
StepCase step_case(const RunConfig& config, const MemoryOptions& options, const PlanTarget& target) {
  BenchOptions rows{.recompute = options.recompute};
  if (options.batch > 0) rows.batch_sizes = std::to_string(options.batch);
  const std::vector<StepCase> cases = bench_cases(config, rows, target);
  if (cases.size() != 1)
    throw ConfigError(fmt::format("--recompute: expected one policy, got '{}'", options.recompute));
  return cases.front();
}

/// Throws ConfigError where the folder holds a profile already.
void require_free(const fs::path& folder, bool overwrite) {
  if (folder.empty() || overwrite) return;
  std::error_code error;  // of a folder that cannot be: reported where it is made
  for (const char* file : kFiles)
    if (fs::exists(folder / file, error))
      throw ConfigError(fmt::format("--out: {} holds a profile already ({}); name another folder, or --overwrite",
                                    folder.string(), file));
}

/// profile-<config>-<date-time>, with a number appended where two begin in one second.
fs::path fresh_folder(const std::string& name) {
  const std::string base = fmt::format("profile-{}-{:%Y%m%d-%H%M%S}", name, fmt::localtime(std::time(nullptr)));
  for (int number = 1;; ++number) {
    const fs::path path = number == 1 ? base : fmt::format("{}-{}", base, number);
    std::error_code error;
    if (fs::create_directory(path, error)) return path;
    if (error) throw DataError(fmt::format("{}: cannot make the folder: {}", path.string(), error.message()));
  }
}

std::string signed_count(std::uint64_t a, std::uint64_t b) {
  return fmt::format("{}", static_cast<std::int64_t>(a) - static_cast<std::int64_t>(b));
}

void print_words(const MemoryProfile& profile, const StepCase& row, bool estimate, const fs::path& folder) {
  print_out("{} on {}, batch {}, {}, recompute {}\n", printable_line(profile.model), to_string(profile.device),
            row.batch, to_string(profile.step.precision), policy_name(row));
  if (row.predicted_extra)
    print_out("  {}\n  to fit: {} time predicted\n", wrapped(row.recompute, 76, "  "),
              predicted_percent(*row.predicted_extra, estimate));
  print_out("steps {} to {} of {}, {} allocations and frees\n\n", profile.options.first_step, profile.options.last_step,
            profile.options.last_step, format_count(profile.trace->now()));
  print_out("{}\n", to_text(profile.report));
  const std::uint64_t peak = profile.report.stats.peak_bytes;
  const auto at = static_cast<std::size_t>(profile.peak_tick);
  const TraceEvent& event = profile.trace->events()[at];
  const std::int64_t step = profile.step_at(profile.peak_tick);
  print_out("peak {} ({} bytes), planned {} (difference {})\nreached in {} of {}, {}\n\n", format_byte_size(peak),
            format_count(static_cast<std::int64_t>(peak)), format_byte_size(profile.planned_peak_bytes),
            signed_count(peak, profile.planned_peak_bytes), event.phase, event.tag.owner,
            step == 0 ? "before the first step" : fmt::format("step {}", step));
  for (const char* file : kFiles) print_out("{}\n", (folder / file).string());
}

void print_json(const MemoryProfile& profile, const fs::path& folder) {
  nlohmann::ordered_json json = about_json(profile);
  json["first_step"] = profile.options.first_step;
  json["last_step"] = profile.options.last_step;
  json["events"] = profile.trace->now();
  json["peak_bytes"] = profile.report.stats.peak_bytes;
  json["planned_peak_bytes"] = profile.planned_peak_bytes;
  json["report"] = nlohmann::ordered_json::parse(to_json(profile.report));
  for (const char* file : kFiles) json["files"].push_back((folder / file).string());
  print_out("{}\n", json_text(json));
}

int profile_memory(MemoryOptions options) {
  const auto named = take_profile(options.common, "");
  if (named && !options.planned)
    throw ConfigError(fmt::format("--device: {} is a profile: say --planned to run on its stand-in", named->name));
  const RunConfig config = read_config(options.common);
  if (!options.planned) require_device(config);
  MemoryProfileOptions profile_options{.planned = options.planned, .threads = options.common.threads};
  const StepRange steps = parse_step_range(options.steps, kMostSteps);
  profile_options.first_step = steps.first, profile_options.last_step = steps.last;
  RunConfig planned = config;
  planned.planned_for = named;
  const StepCase row = step_case(planned, options, plan_target(config, named));
  profile_options.curve_batches =
      options.batch_sizes.empty() ? curve_around(row.batch) : parse_integers("--batch-sizes", options.batch_sizes);
  std::vector<std::int64_t>& batches = profile_options.curve_batches;
  std::ranges::sort(batches);
  batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
  require_free(options.out, options.overwrite);
  MemoryProfile profile = [&] {
    try {
      return profile_steps(config, row, profile_options);
    } catch (const OutOfMemory& error) {
      throw explain_step(error, config, row);
    }
  }();
  if (options.planned) profile.target = (named ? named->title() : to_string(config.device)) + ", planned";
  if (named) profile.device_bytes = named->total_bytes;
  const fs::path folder = options.out.empty() ? fresh_folder(config.name) : fs::path(options.out);
  make_folders(folder);
  write_file_atomically(folder / "events.csv", events_csv(profile));
  write_file_atomically(folder / "trace.json", trace_json(profile));
  write_file_atomically(folder / "snapshot.pickle", snapshot_pickle(profile));
  write_file_atomically(folder / "report.html", report_html(profile));
  if (options.json)
    print_json(profile, folder);
  else
    print_words(profile, row, rates_of(planned, row.precision).estimate, folder);
  return 0;
}

}  // namespace

void add_profile_memory(CLI::App& profile, Action& action) {
  CLI::App* command = profile.add_subcommand("memory", "What a few training steps' memory is for");
  command->footer(kAboutProfileMemory);
  const auto options = std::make_shared<MemoryOptions>();
  add_common_options(*command, options->common);
  add_precision_flag(*command, options->common);
  command->add_option("--steps", options->steps, "Steps to look at, first-last;\nthose before are run too")
      ->capture_default_str();
  command->add_option("--batch-size", options->batch, "Default: the config's, or 16")->check(CLI::Range(1, 1 << 24));
  command->add_option("--recompute", options->recompute,
                      "none, inner, cheap, all, names of blocks (a+b), or\nauto: the least that fits the "
                      "budget;\ndefault: the config's");
  command->add_option("--batch-sizes", options->batch_sizes,
                      "Of the report's curve, comma-separated;\ndefault: a quarter to four times the batch");
  command->add_option("--out", options->out, "Folder; default: profile-<config>-<date-time>");
  command->add_flag("--overwrite", options->overwrite, "Replace a profile in --out");
  command->add_flag("--planned", options->planned, "On a stand-in for the device: no kernel runs");
  command->add_flag("--json", options->json, "One JSON object instead of words");
  command->callback([&action, options] { action = [options] { return profile_memory(*options); }; });
}

}  // namespace bantam::cli
