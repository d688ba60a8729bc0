// `bantam train`: from a configuration to trained weights in a run directory.
#include "bantam/run/train/train.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/byte_size.h"
#include "bantam/base/counted.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/plain_words.h"
#include "bantam/base/text.h"
#include "bantam/cli/failure.h"
#include "bantam/cli/options/options.h"
#include "bantam/cli/print/oom_message.h"
#include "bantam/cli/print/output.h"
#include "bantam/cli/print/terminal.h"
#include "bantam/cli/print/train_report.h"
#include "bantam/cli/signals.h"
#include "bantam/cli/sweep/sweep_session.h"
#include "bantam/cli/train/run_server.h"
#include "bantam/cli/train/train_ranks.h"
#include "bantam/cli/train/trial.h"
#include "bantam/cli/train_printer.h"
#include "bantam/run/ranks/rank_config.h"
#include "bantam/run/ranks/rank_devices.h"
#include "bantam/run/train/run_record.h"
#include "bantam/run/train/training_run.h"

namespace bantam::cli {
namespace {

constexpr const char* kAbout =
    "Train the configuration's model on its data. The run's folder gets the resolved\n"
    "configuration, metrics, checkpoints on the way, and the final weights. Ctrl-C\n"
    "(or SIGTERM, SIGUSR1, a hangup) stops after the batch under way and saves;\n"
    "--resume goes on from the newest checkpoint, to the same bits. Another Ctrl-C,\n"
    "a second later, ends at once without saving.\n"
    "Example: bantam train configs/quickstart.yaml train.epochs=2";

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

struct TrainFlags {
  CommonOptions common;
  std::string resume, run_dir, progress = "auto";
  bool overwrite = false, accept_changes = false, json = false, verify = false;
  bool dry_run = false, print_config = false, strict_disk = false;
  std::int64_t repeat = 1, fast_dev = 0;  ///< the command's --repeat and --fast-dev; fast_dev 0: a whole run
  int ranks = 0;                          ///< 0: as many as a launcher says, else one
  std::string gpus;                       ///< as typed: of the ranks on this host; empty: by the configuration
  int serve = -1;                         ///< a port; 0: a free one; -1: no page is served
  bool is_trial() const { return dry_run || fast_dev > 0; }
};

RunDirectory open_run(const std::string& folder) {
  if (Sweep::is_in(folder))
    throw ConfigError(
        fmt::format("--resume: {} is the folder of a sweep, which `bantam sweep --resume {}` goes on with; or name one "
                    "of the runs in it",
                    folder, folder));
  return RunDirectory::open(folder);
}

RunConfig read_config_of(const RunDirectory& run, const std::vector<std::string>& overrides) {
  try {
    return read_run_config(run.config(), overrides);
  } catch (const ConfigError& error) {
    throw run::with_program_of(error, run.path());
  }
}

/// The configuration of a new run, or of the run to go on with, with the flags' overrides.
RunConfig read_train_config(const TrainFlags& options, const RunDirectory* resumed) {
  std::string path = options.common.config;
  std::vector<std::string> overrides = all_overrides(options.common);
  if (resumed != nullptr) {
    // After --resume the first bare argument is an override too.
    if (path.find('=') != std::string::npos) overrides.insert(overrides.begin(), std::exchange(path, ""));
    if (!path.empty()) throw ConfigError("name CONFIG or --resume RUN, not both: a run has its own configuration");
  } else if (path.empty()) {
    throw ConfigError("train: name a CONFIG, e.g. configs/quickstart.yaml, or --resume RUN");
  }
  if (options.verify) overrides.push_back("data.verify=true");
  if (!options.gpus.empty()) overrides.push_back("device=" + to_string(run::parse_gpus(options.gpus).front()));
  if (options.fast_dev == 0) {
    RunConfig config = resumed != nullptr ? read_config_of(*resumed, overrides) : read_run_config(path, overrides);
    if (options.dry_run) pack_nothing(config);
    return config;
  }
  const std::string text = ConfigDocument::read_text(path);  // a pipe can be read only once
  const std::vector<std::string> few =
      fast_dev_overrides(run::parse_run_config(text, path, overrides), options.fast_dev);
  overrides.insert(overrides.end(), few.begin(), few.end());
  RunConfig config = run::parse_run_config(text, path, overrides);
  config.is_trial = true;
  limit_held_out(config, options.fast_dev);
  pack_nothing(config);
  return config;
}

/// Whether it arrived is for main() to say.
void print_result(const std::string& text) {
  write_text(text);
  std::fflush(stdout);
}

std::string finished_message(const run::Outcome& outcome) {
  const run::TrainConfig& train = outcome.config->train;
  const std::string folder = outcome.folder.string();
  if (outcome.result.stopped_early)
    return fmt::format("{} has ended: {}; train.stop_early=off or a larger patience goes on", folder, outcome.reason);
  if (train.updates > 0 && (train.max_updates == 0 || train.max_updates >= train.updates))
    return fmt::format("{} has all of its {}; train.updates=N goes on to more", folder,
                       counted(train.updates, "update"));
  if (outcome.result.epoch < train.epochs)
    return fmt::format("{} has its {} (train.max_updates); train.max_updates=N goes on to more", folder,
                       counted(train.max_updates, "update"));
  return fmt::format("{} has finished its {} epoch{}; train.epochs=N goes on to more", folder, train.epochs,
                     train.epochs == 1 ? "" : "s");
}

/// The closing summary; of a trial what it found.
void print_outcome(const TrainFlags& options, const run::Outcome& outcome, Clock::time_point start,
                   const TrainPrinter& printer) {
  if (options.is_trial()) return print_result(options.json ? trial_json(outcome) : printable(trial_text(outcome)));
  TrainReport report{.outcome = outcome,
                     .seconds = seconds_between(start, Clock::now()),
                     .columns = static_cast<std::size_t>(terminal_columns(stdout))};
  if (printer.shown.first()) report.start_seconds = seconds_between(start, *printer.shown.first());
  print_result(options.json ? json_text(closing_json(report)) + "\n" : printable(closing_summary(report)));
}

/// A sweep of one setting.
int run_repeated(const TrainFlags& options) {
  if (options.common.config.empty())
    throw ConfigError("train: name a CONFIG, e.g. configs/quickstart.yaml, beside --repeat");
  if (const LaunchEnvironment launched = read_launch_environment(); launched.size > 1)
    throw ConfigError(
        fmt::format("--repeat: its runs have one rank each, but {} has started {}", launched.launcher, launched.size));
  SweepPlan plan = plan_of(options.common);
  plan.repeat = options.repeat;
  if (options.verify) plan.overrides.push_back("data.verify=true");
  const std::string name = plan.config_path.stem().string();
  return train_and_print(Sweep::create(std::move(plan), options.run_dir, name),
                         {.threads = options.common.threads, .progress = options.progress, .json = options.json});
}

/// The page of the run, where it is asked for; from its beginning until the end of this verb.
std::unique_ptr<RunServer> serve_run(const TrainFlags& options, Progress& progress, TrainPrinter& printer) {
  if (options.serve < 0) return nullptr;
  auto server = std::make_unique<RunServer>(options.serve);
  progress.message(fmt::format("the run's page is at http://127.0.0.1:{}/", server->port()));
  printer.on_folder = [server = server.get()](const std::filesystem::path& folder) { server->follow(folder); };
  return server;
}

/// The signals of a rank that prints nothing.
struct QuietRank : RunObserver {
  explicit QuietRank(StopOnSignal& signals) : stop(signals) {}
  void on_ready() override { stop.begin_training(); }
  void on_saved() override { stop.note_saved(); }
  StopOnSignal& stop;
};

int threads_of(const TrainFlags& options, const TrainRanks* ranks) {
  const int asked = options.common.threads;
  return asked > 0 || ranks == nullptr ? asked : ranks->threads();
}

/// The GPUs of this host's ranks, where --gpus names them.
std::vector<Device> gpus_of(const TrainFlags& options) {
  if (options.gpus.empty()) return {};
  std::vector<Device> gpus = run::parse_gpus(options.gpus);
  run::require_gpus(gpus, cuda_device_count(), cuda_unavailable_reason());
  return gpus;
}

/// How many ranks the flags say; 0: they do not.
int asked_ranks(const TrainFlags& options) {
  return options.gpus.empty() ? options.ranks : static_cast<int>(run::parse_gpus(options.gpus).size());
}

/// How many ranks train, as flags and launcher say. Throws ConfigError where the two disagree, or where a run of
/// several was asked for what only one can do.
int ranks_of(const TrainFlags& options, const LaunchEnvironment& launched) {
  const int asked = asked_ranks(options), ranks = launched.size > 1 || asked == 0 ? launched.size : asked;
  if (options.ranks > 0 && options.ranks != ranks)
    throw ConfigError(fmt::format("--ranks {}: {} has started {} ranks", options.ranks, launched.launcher, ranks));
  if (!options.gpus.empty() && launched.size > 1 && launched.local_size > 0 && asked != launched.local_size)
    throw ConfigError(fmt::format("--gpus {}: {} has started {} rank{} on this host", options.gpus, launched.launcher,
                                  launched.local_size, launched.local_size == 1 ? "" : "s"));
  if (ranks > 1 && options.fast_dev > 0)
    throw ConfigError(fmt::format("--fast-dev-run: a trial has one rank, not {}", ranks));
  return ranks;
}

/// A rank other than 0.
int run_worker(const TrainFlags& options, const LaunchEnvironment& launched) {
  StopOnSignal stop(true);
  const auto asked = [&stop] { return stop.requested(); };
  const std::string who = fmt::format("rank {}: ", launched.rank);
  std::unique_ptr<TrainRanks> ranks;
  QuietRank quiet(stop);
  try {
    (void)ranks_of(options, launched);
    ranks = TrainRanks::join(launched, asked, gpus_of(options));
    const run::Outcome outcome =
        run::train_worker({.threads = threads_of(options, ranks.get()), .stop = asked},
                          {.observer = &quiet, .ranks = ranks->ranks(), .stop_start = asked, .signal = [&stop] {
                             return stop.signal();
                           }});
    return outcome.result.stopped && outcome.signal != 0 ? stop_exit_code(outcome.signal) : 0;
  } catch (const StoppedBeforeTraining&) {
    return stop_exit_code(stop.signal());
  } catch (const CommunicationError& error) {
    if (ranks != nullptr) return ranks->report(error);
    if (stop.requested()) return stop_exit_code(stop.signal());
    return launched.launcher == kOwnLauncher ? int{kFailed} : report_exception(who);  // rank 0 reports
  } catch (const NotFiniteError&) {                                                   // which rank 0 reports
    return kNotFinite;
  } catch (const std::exception&) {
    return report_exception(who);
  }
}

/// Rank 0, or the only one.
class TrainCommand {
 public:
  explicit TrainCommand(const TrainFlags& options)
      : options_(options),
        progress_(parse_progress_mode(options.progress, stderr), stderr),
        printer_(progress_, stop_) {}

  int run(const LaunchEnvironment& launched) {
    const int count = ranks_of(options_, launched);
    const std::vector<Device> gpus = gpus_of(options_);
    const auto asked = [this] { return stop_.requested(); };
    if (launched.size > 1) ranks_ = TrainRanks::join(launched, asked, gpus);
    try {
      std::optional<RunDirectory> resumed;
      if (!options_.resume.empty()) resumed.emplace(open_run(options_.resume));
      const RunConfig config = read_train_config(options_, resumed ? &*resumed : nullptr);
      if (options_.print_config) {
        print_result(config.document.resolved_yaml());
        if (ranks_ != nullptr) ranks_->fail("--print-config trains nothing");
        return kDone;
      }
      run::require_ranks(config, count);
      if (count > 1 && ranks_ == nullptr) ranks_ = TrainRanks::spawn(count, asked, gpus);
      return train_config(config, resumed ? &*resumed : nullptr);
    } catch (const CommunicationError& error) {
      progress_.close();
      if (ranks_ != nullptr) return ranks_->report(error);
      return stop_.requested() ? stop_exit_code(stop_.signal()) : report_exception();
    } catch (const std::exception& error) {
      if (ranks_ != nullptr) {
        ranks_->fail(plain_words(error));
        ranks_->wait();
      }
      throw;
    }
  }

 private:
  int train_config(const RunConfig& config, const RunDirectory* resumed) {
    std::optional<TrialFolder> trial;
    if (options_.is_trial()) trial.emplace();
    const TrialFolder* const folder = trial ? &*trial : nullptr;
    const std::unique_ptr<RunServer> server = serve_run(options_, progress_, printer_);
    notify_ranks();
    Callback* const callbacks[] = {&printer_.shown};
    try {
      const run::Outcome outcome = train(config, run_options(folder), callbacks, hooks(resumed, folder));
      if (outcome.finished_before) progress_.message(finished_message(outcome));
      print_outcome(options_, outcome, start_, printer_);
      if (ranks_ != nullptr) ranks_->wait();
      const int signal = ranks_ != nullptr ? outcome.signal : stop_.signal();
      return (trial || outcome.result.stopped) && signal != 0 ? stop_exit_code(signal) : int{kDone};
    } catch (const StoppedBeforeTraining& stopped) {
      progress_.message(stopped.what());
      if (ranks_ != nullptr) ranks_->wait();
      return stop_exit_code(stop_.signal());
    } catch (const OutOfMemory& error) {
      throw explain_training(error, printer_.config_or(config));
    }
  }

  run::TrainOptions run_options(const TrialFolder* trial) {
    return {.threads = threads_of(options_, ranks_.get()),
            .folder = trial != nullptr ? trial->path() : std::filesystem::path(options_.run_dir),
            .overwrite = options_.overwrite,
            .accept_changes = options_.accept_changes,
            .stop = [this] { return options_.dry_run || stop_.requested(); }};
  }

  run::RunHooks hooks(const RunDirectory* resumed, const TrialFolder* trial) {
    return {.observer = &printer_,
            .ranks = ranks_ != nullptr ? ranks_->ranks() : run::RunRanks(),
            .resume = resumed,
            .stop_start = [this] { return stop_.requested(); },
            .signal = [this] { return stop_.signal(); },
            .command = run::command_line(),
            // A trial keeps nothing; the run that it is for would lie below the current folder.
            .disk = {.strict = options_.strict_disk, .folder = trial != nullptr ? "runs" : ""}};
  }

  /// Messages of a rank's failure name the run's folder. What was trained until then is written, however long that
  /// lasts.
  void notify_ranks() {
    if (ranks_ == nullptr) return;
    printer_.on_write = [this](bool writes) { ranks_->pause_end(writes); };
    printer_.on_folder = [this, next = printer_.on_folder](const std::filesystem::path& folder) {
      ranks_->set_folder(folder);
      if (next) next(folder);
    };
  }

  const TrainFlags& options_;
  const Clock::time_point start_ = Clock::now();
  StopOnSignal stop_;
  Progress progress_;
  TrainPrinter printer_;
  std::unique_ptr<TrainRanks> ranks_;  // null: the run has one
};

int run_train(const TrainFlags& options) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader of the progress that goes away must not end the run
  const LaunchEnvironment launched = read_launch_environment();
  return launched.rank > 0 ? run_worker(options, launched) : TrainCommand(options).run(launched);
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("train", "Train a model");
  command->footer(kAbout);
  const auto options = std::make_shared<TrainFlags>();
  add_common_options(*command, options->common);
  command->get_option("CONFIG")->required(false);
  add_precision_flag(*command, options->common);
  add_override_flag(*command, options->common, "--epochs", "train.epochs", "Epochs (train.epochs)");
  add_override_flag(*command, options->common, "--batch-size,--batch-sizes", "data.pipeline.batch.size",
                    "Images a batch, or auto\n(data.pipeline.batch.size)");
  command->add_option("--run-dir", options->run_dir, "Folder of the run;\ndefault: runs/<config>-<date-time>");
  command->add_flag("--overwrite", options->overwrite, "Replace a run that is in --run-dir");
  CLI::Option* const strict_disk =
      command->add_flag("--strict-disk", options->strict_disk,
                        "Refuse (exit code 4), not warn, where weights and\ntwo checkpoints do not fit the disk");
  command
      ->add_option("--resume", options->resume,
                   "Go on with the run in this folder, or from\nthis checkpoint of it, instead of CONFIG")
      ->excludes("--run-dir");
  command->add_flag("--accept-changes", options->accept_changes,
                    "With --resume: go on although keys that\ndecide what an update computes have changed");
  CLI::Option* repeat = command->add_option("--repeat", options->repeat,
                                            "Train so often, with the seed and those after it,\nand print means and "
                                            "deviations");
  repeat->check(CLI::Range(1, 10'000))->excludes("--resume")->excludes("--overwrite")->excludes(strict_disk);
  CLI::Option* ranks = command->add_option("--ranks", options->ranks, "Processes on this host that share the replicas");
  ranks->check(CLI::Range(1, 1024).description(""))->type_name("N")->excludes(repeat);
  command
      ->add_option("--gpus", options->gpus,
                   "A process a GPU, that share the replicas: how many,\nor their numbers: 0,1 (0,0: two on one)")
      ->type_name("N")
      ->excludes(ranks)
      ->excludes(repeat)
      ->excludes("--device");
  command->add_option("--serve", options->serve, "Port of 127.0.0.1 for the run's page; 0: any")
      ->check(CLI::Range(0, 65535).description(""))
      ->excludes(repeat);
  CLI::Option* const dry =
      command->add_flag("--dry-run", options->dry_run, "All but training: data, memory, model; keeps nothing");
  CLI::Option* const fast = command->add_option("--fast-dev-run", options->fast_dev,
                                                "So many updates, and as many batches evaluated;\nkeeps nothing");
  fast->check(CLI::Range(1, 1'000'000))->type_name("N");
  CLI::Option* const print =
      command->add_flag("--print-config", options->print_config, "The configuration with every default; no training");
  for (CLI::Option* const trial : {dry, fast, print})
    for (const char* const other : {"--run-dir", "--overwrite", "--resume", "--repeat"}) trial->excludes(other);
  dry->excludes(fast);
  add_progress_flags(*command, options->progress);
  command->add_flag("--json", options->json, "Close with one JSON object instead of the summary");
  command->add_flag("--verify", options->verify, "Check the data files' SHA-256");
  command->callback([&action, options] {
    action = [options] { return options->repeat > 1 ? run_repeated(*options) : run_train(*options); };
  });
}

}  // namespace bantam::cli
