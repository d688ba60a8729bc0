// `bantam profile step`: where the time of a training step goes, and what would make it shorter.
#include <cstdio>
#include <filesystem>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/options/written_file.h"
#include "bantam/cli/print/oom_message.h"
#include "bantam/cli/print/output.h"
#include "bantam/cli/print/terminal.h"
#include "bantam/cli/profile/profile.h"
#include "bantam/cli/profile/step_files.h"
#include "bantam/cli/profile/step_profile_report.h"
#include "bantam/run/fit/decisions.h"
#include "bantam/run/fit/step_grid.h"
#include "bantam/run/profile/step_xspace.h"

namespace bantam::cli {
namespace {

constexpr const char* kAboutProfileStep =
    "Record steps as training runs them (captured on a GPU) and divide their time\n"
    "among operations, kernels, gaps and threads, beside what the device allows.\n"
    "Example: bantam profile step configs/quickstart.yaml --out step.html";

constexpr double kTrySeconds = 1.0;  // of a change that is measured

struct StepOptions {
  CommonOptions common;
  std::string steps = "4-13", out, trace, tensorboard;
  std::int64_t batch = 0;
  std::size_t rows = 12;
  bool tries = false, overwrite = false, json = false;
};

/// The step as `bantam train` runs it.
StepCase step_case(const RunConfig& config, const StepOptions& options) {
  const PlanTarget target = plan_target(config, {});
  StepGrid grid{.modes = {config.train.mode}, .whole_run = true};
  if (options.batch > 0) grid.batches = {options.batch};
  DecisionLog log;
  const RunConfig decided = decide_step(config, target, grid.batches, log);
  return step_cases(decided, grid, plan_fit(decided.memory, target).chosen_pool()).front();
}

/// It is made where it is missing.
void require_no_file(const std::string& flag, const std::string& folder) {
  std::error_code error;
  if (std::filesystem::exists(folder, error) && !std::filesystem::is_directory(folder, error))
    throw ConfigError(fmt::format("{}: expected a folder, {} is a file", flag, folder));
}

int profile_step_verb(const StepOptions& options) {
  const StepRange steps = parse_step_range(options.steps, kMostRecordedUpdates);
  require_place("--out", options.out, options.overwrite);
  require_place("--trace", options.trace, options.overwrite);
  require_no_file("--tensorboard", options.tensorboard);
  const RunConfig config = read_config(options.common);
  require_device(config);
  const StepCase step = step_case(config, options);
  const StepProfile profile = [&] {
    try {
      return profile_step(config, step,
                          {.first_step = steps.first,
                           .last_step = steps.last,
                           .threads = options.common.threads,
                           .try_seconds = options.tries ? kTrySeconds : 0});
    } catch (const OutOfMemory& error) {
      throw explain_step(error, config, step);
    }
  }();
  if (!options.out.empty()) write_file_atomically(options.out, step_page(profile));
  if (!options.trace.empty()) write_file_atomically(options.trace, step_trace_json(profile));
  if (!options.tensorboard.empty()) {
    const std::filesystem::path file = write_step_xspace(profile, options.tensorboard);
    if (!options.json) print_error("Profile for TensorBoard: {}\n", printable_line(file.string()));
  }
  if (options.json)
    print_out("{}\n", json_text(json_of(profile)));
  else
    print_out("{}", text_of(profile, options.rows,
                            {.text = static_cast<std::size_t>(terminal_columns(stdout)),
                             .table = static_cast<std::size_t>(table_columns(stdout))}));
  return 0;
}

}  // namespace

void add_profile_step(CLI::App& profile, Action& action) {
  CLI::App* command = profile.add_subcommand("step", "Where a training step's time goes");
  command->footer(kAboutProfileStep);
  const auto options = std::make_shared<StepOptions>();
  add_common_options(*command, options->common);
  add_precision_flag(*command, options->common);
  command->add_option("--steps", options->steps, "Steps to record, first-last; those before run too")
      ->capture_default_str();
  command->add_option("--batch-size", options->batch, "Default: the config's, or 16")->check(CLI::Range(1, 1 << 24));
  command->add_option("--rows", options->rows, "Rows of a table; 0: all")->capture_default_str();
  command->add_flag("--try", options->tries, "Also run each change, and measure it");
  command->add_option("--out", options->out, "A page for the browser, with a flame chart");
  command->add_option("--trace", options->trace, "A trace for ui.perfetto.dev");
  command->add_option("--tensorboard", options->tensorboard, "Folder for TensorBoard's profile plugin");
  command->add_flag("--overwrite", options->overwrite, "Replace the files of --out and --trace");
  command->add_flag("--json", options->json, "One JSON object instead of tables");
  command->callback([&action, options] { action = [options] { return profile_step_verb(*options); }; });
}

}  // namespace bantam::cli
