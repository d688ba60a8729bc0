// `bantam sweep`: every combination of some values of a configuration, trained one after another.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/cli/options/options.h"
#include "bantam/cli/sweep/sweep_session.h"

namespace bantam::cli {
namespace {

constexpr const char* kAbout =
    "Trains every combination of the values, each in a folder of its own, and prints\n"
    "means and deviations by setting, the best first. A comma separates values where\n"
    "it is outside of quotes, [] and {}. Ctrl-C stops and saves; --resume goes on.\n"
    "Example: bantam sweep configs/quickstart.yaml --repeat 3 --epochs 2 \\\n"
    "           --set train.optimizer.adam.learning_rate=1e-3,3e-3";

struct SweepVerbOptions {
  CommonOptions common;
  std::vector<std::string> axes;
  std::string out, resume;
  std::int64_t repeat = 0;  // 0: not said
  SweepFlags flags;
};

Sweep new_sweep(const SweepVerbOptions& options) {
  if (options.common.config.empty())
    throw ConfigError("sweep: name a CONFIG, e.g. configs/quickstart.yaml, or --resume DIR");
  if (options.axes.empty() && options.repeat == 0)
    throw ConfigError("sweep: name what varies: --set KEY=VALUE,VALUE,… or --repeat N");
  SweepPlan plan = plan_of(options.common);
  for (const std::string& axis : options.axes) plan.axes.push_back(parse_axis(axis));
  plan.repeat = std::max<std::int64_t>(options.repeat, 1);
  const std::string name = plan.config_path.stem().string() + "-sweep";
  return Sweep::create(std::move(plan), options.out, name);
}

Sweep old_sweep(const SweepVerbOptions& options) {
  if (!options.common.config.empty() || !options.axes.empty() || !all_overrides(options.common).empty())
    throw ConfigError(
        "sweep: --resume DIR has the sweep's own configuration and values; beside it are --repeat, --threads, "
        "--progress and --json");
  Sweep sweep = Sweep::open(options.resume);
  if (options.repeat > 0) sweep.set_repeat(options.repeat);
  return sweep;
}

int run_sweep(const SweepVerbOptions& options) {
  SweepFlags flags = options.flags;
  flags.threads = options.common.threads;
  return train_and_print(options.resume.empty() ? new_sweep(options) : old_sweep(options), flags);
}

}  // namespace

void add_sweep(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("sweep", "Train several settings and seeds, and compare them");
  command->footer(kAbout);
  const auto options = std::make_shared<SweepVerbOptions>();
  add_common_options(*command, options->common);
  command->get_option("CONFIG")->required(false);
  add_precision_flag(*command, options->common);
  add_override_flag(*command, options->common, "--epochs", "train.epochs", "Epochs (train.epochs)");
  command->add_option("--set", options->axes, "A key and its values; several: every combination")
      ->type_name("KEY=A,B,…");
  command->add_option("--repeat", options->repeat, "Runs of a setting: its seed and those after it")
      ->check(CLI::Range(1, 10'000));
  command->add_option("--out", options->out, "Folder of the sweep;\ndefault: runs/<config>-sweep-<date-time>");
  command->add_option("--resume", options->resume, "Go on with the sweep in this folder")->excludes("--out");
  add_progress_flags(*command, options->flags.progress);
  command->add_flag("--json", options->flags.json, "One JSON object instead of the table");
  command->callback([&action, options] { action = [options] { return run_sweep(*options); }; });
}

}  // namespace bantam::cli
