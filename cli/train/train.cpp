// `bantam train`: from a configuration to trained weights in a run directory.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/byte_size.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/cli/config/options.h"
#include "bantam/cli/print/json_text.h"
#include "bantam/cli/print/oom_message.h"
#include "bantam/cli/print/train_report.h"
#include "bantam/cli/train/signals.h"
#include "bantam/engine/plan/step_plan.h"
#include "bantam/engine/step/training_step.h"
#include "bantam/engine/train/safetensors.h"
#include "bantam/memory/device/host_memory.h"
#include "bantam/run/fit/fitting.h"
#include "bantam/run/fit/run_plan.h"
#include "bantam/run/fit/settle.h"
#include "bantam/run/session/algorithm_cache.h"
#include "bantam/run/session/metrics_log.h"

namespace bantam::cli {
namespace {

constexpr const char* kAbout =
    "Train the configuration's model on its data. The run's folder gets the resolved\n"
    "configuration, metrics, and the final weights. Ctrl-C (or SIGTERM, or a hangup)\n"
    "stops after the batch under way and saves; --resume goes on from there, to the\n"
    "same bits. Once more, a second later, ends at once without saving.";

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

struct TrainOptions {
  CommonOptions common;
  std::string resume, run_dir, progress = "auto";
  bool overwrite = false, json = false, verify = false;
};

/// Where a run goes on, kept in its state file.
struct Position {
  std::int64_t epoch = 0, update = 0;
  // What `update` means nothing without: a run stopped inside an epoch goes on with the same.
  std::int64_t effective_batch = 0;  ///< samples an update
  std::int64_t batches = 0;          ///< in an epoch
  std::int64_t seed = 0;
};

/// Throws DataError where a number of the state file cannot be one.
void check_saved(const std::filesystem::path& state, const char* name, std::int64_t value, std::int64_t least,
                 std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
  if (value >= least && value <= most) return;
  throw DataError(fmt::format("{}: {} is {}, expected {} to {}", state.string(), name, value, least, most));
}

/// With `auto` written out and memory settled, so that the run's config.yaml gives the same run on any machine.
/// `resumed`: the folder of the run to go on with; null: a new one.
RunConfig read_train_run(const TrainOptions& options, const RunDirectory* resumed, Progress& progress) {
  std::string path = options.common.config;
  std::vector<std::string> overrides = all_overrides(options.common);
  if (resumed != nullptr) {
    // Behind --resume the first bare argument is an override too.
    if (path.find('=') != std::string::npos) overrides.insert(overrides.begin(), std::exchange(path, ""));
    if (!path.empty()) throw ConfigError("give CONFIG or --resume RUN_DIR, not both: a run has its own configuration");
    path = resumed->config().string();
  } else if (path.empty()) {
    throw ConfigError("train: give a CONFIG, e.g. configs/quickstart.yaml, or --resume RUN_DIR");
  }
  if (options.verify) overrides.push_back("data.verify=true");
  const RunConfig config = read_run_config(path, overrides);
  require_device(config);
  if (!config.data) config.document.root().fail_at_key("missing key 'data': training needs data");
  // A stop inside an epoch is resumed with the same numbers: those of the run's own configuration, all settled.
  Settled settled;
  try {
    settled = settle(config);
  } catch (const OutOfMemory& error) {
    throw explain_training(error, config);
  }
  for (const std::string& message : settled.messages) progress.message(message);
  for (const std::string& warning : settled.warnings) progress.warning(warning);
  return with_settled(config, settled);
}

/// Writes the configuration when the first updates are done: what fails before leaves no file.
class BeginningOfRun : public Callback {
 public:
  /// `warn` is told where it cannot be written: it is tried again with the weights.
  BeginningOfRun(const RunDirectory& directory, const RunConfig& config, std::function<void(std::string_view)> warn)
      : directory_(directory), config_(config), warn_(std::move(warn)) {}
  bool observes() const override { return true; }
  void on_progress(const ProgressEvent&) override {
    if (std::exchange(done_, true)) return;
    try {
      write_file_atomically(directory_.config(), config_.document.resolved_yaml());
    } catch (const DataError& error) {
      warn_(error.what());
    }
  }

 private:
  const RunDirectory& directory_;
  const RunConfig& config_;
  std::function<void(std::string_view)> warn_;
  bool done_ = false;
};

/// Everything that a run holds, in the order of its making.
class TrainRun {
 public:
  /// `log` gets the runtime's messages, and must outlive the run.
  /// `resumed`: the folder of the run to go on with; null: a new one begins.
  TrainRun(const RunConfig& config, int threads, Progress& log, const RunDirectory* resumed)
      : config_(config),
        resumed_(resumed != nullptr),
        plan_(plan_run(config)),
        runtime_(make_reserved_runtime(config, plan_, threads, log)),
        algorithms_(*runtime_, config, resumed == nullptr ? "" : resumed->algorithms(), plan_.pool_bytes),
        data_(open_data(*runtime_, *config.data, config.device, config.seed)),
        model_(*runtime_, config.device, config.model.graph, model_options(config)),
        optimizer_(model_, config.train.optimizer),
        step_(model_, optimizer_, config.train.loss) {
    step_.prepare({}, plan_.placements);
    model_.register_state(state_);
    optimizer_.register_state(state_);
    const auto counter = [this](const char* name, std::int64_t& value) {
      state_.add_counter(
          name, [&value] { return value; }, [&value](std::int64_t saved) { value = saved; });
    };
    settle_limit();
    position_ = here();
    counter("trainer/epoch", position_.epoch);
    counter("trainer/update", position_.update);
    counter("trainer/effective_batch", position_.effective_batch);
    counter("trainer/batches", position_.batches);
    counter("trainer/seed", position_.seed);
  }

  void resume(const RunDirectory& directory) {
    load_state(state_, runtime_->stream(config_.device), directory.state());
    check_saved(directory.state(), "trainer/epoch", position_.epoch, 0);
    check_saved(directory.state(), "trainer/update", position_.update, 0);
    check_saved(directory.state(), "trainer/effective_batch", position_.effective_batch, 1);
    check_saved(directory.state(), "trainer/batches", position_.batches, 1);
    if (position_.epoch >= config_.train.epochs)
      throw ConfigError(fmt::format("--resume: {} has finished its {} epochs; say train.epochs=N to go on",
                                    directory.path().string(), position_.epoch));
    const Position now = here();
    const auto require_same = [&](const char* what, std::int64_t then, std::int64_t today) {
      if (position_.update > 0 && then != today)
        throw ConfigError(fmt::format("--resume: the run stopped inside an epoch with {} {}; it cannot go on with {}",
                                      what, then, today));
    };
    require_same("an effective batch of", position_.effective_batch, now.effective_batch);
    require_same("batches an epoch:", position_.batches, now.batches);
    require_same("the seed", position_.seed, now.seed);
    const std::int64_t accumulate = config_.train.accumulate;
    check_saved(directory.state(), "trainer/update", position_.update, 0, (now.batches + accumulate - 1) / accumulate);
    position_.effective_batch = now.effective_batch;
    position_.batches = now.batches;
    position_.seed = now.seed;
  }

  const RunPlan& plan() const { return plan_; }

  /// Trains to the end or to a signal, and saves, also where it throws. `start`: of the command. Gives the signal, or
  /// 0.
  int train(const RunDirectory& directory, Progress& progress, Clock::time_point start, StopOnSignal& stop,
            TrainReport& report) {
    BfcAllocator& memory = runtime_->allocator(config_.device);
    Trainer trainer(step_, *data_.train, data_.validation.get(),
                    {.epochs = config_.train.epochs,
                     .accumulate = config_.train.accumulate,
                     .evaluate = config_.train.evaluate,
                     .mode = config_.train.mode,
                     .on_oom = config_.memory.on_oom,
                     .first_epoch = position_.epoch,
                     .first_update = position_.update,
                     .stop = [&stop] { return stop.requested(); }});
    const auto warn = [&progress](std::string_view text) { progress.warning(text); };
    ProgressCallback shown(progress, memory);
    MetricsLog log(directory.metrics(), config_.train.log_every, memory, warn);
    BeginningOfRun begun(directory, config_, warn);
    if (!resumed_)
      trainer.add(begun);  // a resumed run keeps its configuration until there is state to go with a new one
    trainer.add(log);
    trainer.add(shown);
    try {
      report.result = trainer.run();
    } catch (const NotFiniteError&) {
      progress.close();
      if (!resumed_)
        rescue(trainer.so_far(), directory, log, progress, stop);  // else the state from before is the better one
      throw;
    } catch (...) {
      progress.close();
      rescue(trainer.so_far(), directory, log, progress, stop);
      throw;
    }
    progress.close();
    if (shown.first()) report.start_seconds = seconds_between(start, *shown.first());
    save(report.result, directory);
    stop.note_saved();
    report.batch = effective_batch();
    report.parameters = model_.parameters().parameter_count();
    report.memory = memory.stats();
    report.planned_peak_bytes = plan_.peak_bytes;
    report.planned_pool_bytes = plan_.pool_bytes;
    report.process = runtime_->process_memory(config_.device);
    report.overhead = runtime_->memory_overhead(config_.device);
    if (config_.device.is_cuda()) {
      report.host = runtime_->allocator(Device::cpu()).stats();
      report.pinned = runtime_->pinned_allocator().stats();
    }
    return report.result.stopped ? stop.signal() : 0;
  }

 private:
  /// All files of a run. Each is tried, whatever became of the others; throws the first failure at the end.
  void save(const TrainResult& result, const RunDirectory& directory) {
    position_.epoch = result.epoch;
    position_.update = result.update;
    std::exception_ptr failure;
    const auto attempt = [&failure](const auto& write) {
      try {
        write();
      } catch (...) {
        if (!failure) failure = std::current_exception();
      }
    };
    attempt([&] { make_folders(directory.path()); });  // somebody may have moved it: what was trained is not lost
    const auto configuration = [&] { write_file_atomically(directory.config(), config_.document.resolved_yaml()); };
    const auto algorithms = [&] { algorithms_.save_with_run(directory.algorithms()); };
    const auto state = [&] { save_state(state_, runtime_->stream(config_.device), directory.state()); };
    if (!resumed_) attempt(configuration), attempt(algorithms);  // before the state, which is resumed with them
    attempt([&] { save_weights(model_, directory.weights()); });
    attempt([&] { algorithms_.save(); });
    if (resumed_)  // the state from before, if it has to stay, keeps the configuration that it was made with
      attempt([&] { state(), configuration(), algorithms(); });
    else
      attempt(state);
    if (failure) std::rethrow_exception(failure);
  }
  /// Of a run that failed: saves what it has done before, if anything, and says so.
  void rescue(const TrainResult& done, const RunDirectory& directory, MetricsLog& log, Progress& progress,
              StopOnSignal& stop) noexcept {
    if (done.updates == 0) return;
    try {
      log.on_end();
      save(done, directory);
      stop.note_saved();
      progress.warning(fmt::format("the run failed in epoch {} after {} of its updates, which are saved in {}",
                                   done.epoch + 1, done.update, directory.path().string()));
    } catch (const std::exception& error) {
      progress.warning(fmt::format("the run failed, and what it has trained could not be saved: {}", error.what()));
    }
  }
  /// With the planned pool taken at once; a limit that cannot hold it is refused before anything runs. Where the device
  /// has no such piece now, the run takes memory as it needs it, unless that was ruled out.
  static std::unique_ptr<Runtime> make_reserved_runtime(const RunConfig& config, const RunPlan& plan, int threads,
                                                        Progress& log) {
    std::unique_ptr<Runtime> runtime =
        make_runtime(config, threads, [&log](std::string_view message) { log.warning(message); });
    if (config.memory.on_oom == OnOutOfMemory::fail) runtime->require_pool(config.device, plan.pool_bytes);
    settle_host(config, plan, *runtime, log);
    if (config.memory.growth)
      (void)runtime->allocator(config.device).reserve_pool(plan.pool_bytes);
    else
      runtime->reserve(config.device, plan.pool_bytes);
    return runtime;
  }
  /// What the host cannot hold is refused, too. A run that may go on in smaller pieces gets a limit instead: without
  /// one the system would end it before anything is refused.
  static void settle_host(const RunConfig& config, const RunPlan& plan, Runtime& runtime, Progress& log) {
    const std::uint64_t limit = runtime.limit(config.device);
    const std::uint64_t bytes = limit > 0 ? std::min(limit, plan.pool_bytes) : plan.pool_bytes;
    try {
      // Saving copies the state: weights and the optimizer's moments.
      require_host_memory(config.device, bytes,
                          plan.by_category[Category::parameter] + plan.by_category[Category::optimizer]);
    } catch (const OutOfMemory& refused) {
      const std::uint64_t left = refused.facts().limit_bytes;
      if (config.memory.on_oom == OnOutOfMemory::fail || left == 0) throw;
      log.warning(fmt::format("{}; the pool is limited to {}", refused.what(), format_byte_size(left)));
      runtime.set_limit(config.device, left);
    }
  }
  /// Under a limit on a GPU the run's kernels are loaded and counted before the first batch, not in mid-epoch.
  void settle_limit() {
    if (!config_.device.is_cuda() || runtime_->limit(config_.device) == 0) return;
    const BatchSource& train = *data_.train;
    const std::int64_t full = train.batch_size(), last = train.size_of(train.batches_per_epoch() - 1);
    warm_up(full);
    if (last != full) warm_up(last);
    algorithms_.end_timing();
    runtime_->settle_limit(config_.device);
  }
  /// A run that may go on in smaller pieces is not ended by a warm-up that does not fit.
  void warm_up(std::int64_t batch) {
    const bool accumulates = config_.train.accumulate > 1;
    if (config_.memory.on_oom == OnOutOfMemory::fail)
      step_.warm_up(batch, accumulates);
    else
      (void)warm_up_what_fits(step_, batch, accumulates);
  }
  std::int64_t effective_batch() const { return data_.train->batch_size() * config_.train.accumulate; }
  /// The beginning of this run, as configured.
  Position here() const {
    return {.effective_batch = effective_batch(),
            .batches = data_.train->batches_per_epoch(),
            .seed = static_cast<std::int64_t>(config_.seed)};
  }

  const RunConfig& config_;
  bool resumed_;
  RunPlan plan_;  // before anything is read: a model that does not fit the data is refused
  std::unique_ptr<Runtime> runtime_;
  AlgorithmCache algorithms_;  // before anything runs
  OpenedData data_;
  Model model_;
  Optimizer optimizer_;
  TrainingStep step_;
  StateRegistry state_;
  Position position_;
};

/// From a settled configuration to the closing summary.
int run_settled(const TrainOptions& options, const RunConfig& config, std::optional<RunDirectory> resumed,
                Clock::time_point start, StopOnSignal& stop, Progress& progress) {
  const bool resume = resumed.has_value();
  if (!resume) RunDirectory::require_free(options.run_dir, options.overwrite);
  TrainRun run(config, options.common.threads, progress, resume ? &*resumed : nullptr);
  if (resume) run.resume(*resumed);
  stop.begin_training(resume);
  const RunDirectory directory =
      resume ? std::move(*resumed) : RunDirectory::create(options.run_dir, config.name, options.overwrite);
  progress.message(fmt::format("{} on {}, {}; run folder {}", config.model.name, to_string(config.device),
                               to_string(config.precision), directory.path().string()));
  progress.message(fmt::format("planned: {} in use at the peak, {} held", format_byte_size(run.plan().peak_bytes),
                               format_byte_size(run.plan().pool_bytes)));
  TrainReport report{.config = config, .directory = directory};
  const int signal = run.train(directory, progress, start, stop, report);
  report.seconds = seconds_between(start, Clock::now());
  // Whether it arrived is for main() to say.
  std::fputs((options.json ? json_text(closing_json(report)) + "\n" : printable(closing_summary(report))).c_str(),
             stdout);
  std::fflush(stdout);
  return signal == 0 ? 0 : stop_exit_code(signal);
}

int run_train(const TrainOptions& options) {
  const Clock::time_point start = Clock::now();
  std::signal(SIGPIPE, SIG_IGN);  // a reader of the progress that goes away must not end the run
  StopOnSignal stop;
  Progress progress(parse_progress_mode(options.progress, stderr), stderr);
  std::optional<RunDirectory> resumed;
  if (!options.resume.empty()) resumed.emplace(RunDirectory::open(options.resume));
  const RunConfig config = read_train_run(options, resumed ? &*resumed : nullptr, progress);
  try {
    return run_settled(options, config, std::move(resumed), start, stop, progress);
  } catch (const OutOfMemory& error) {
    throw explain_training(error, config);
  }
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("train", "Train a model");
  command->footer(kAbout);
  const auto options = std::make_shared<TrainOptions>();
  add_common_options(*command, options->common);
  command->get_option("CONFIG")->required(false);
  add_precision_flag(*command, options->common);
  add_override_flag(*command, options->common, "--epochs", "train.epochs", "Epochs (train.epochs)");
  add_override_flag(*command, options->common, "--batch-size,--batch-sizes", "data.pipeline.batch.size",
                    "Images a batch, or auto\n(data.pipeline.batch.size)");
  command->add_option("--run-dir", options->run_dir, "Folder of the run;\ndefault: runs/<config>-<date-time>");
  command->add_flag("--overwrite", options->overwrite, "Replace a run that is in --run-dir");
  command->add_option("--resume", options->resume, "Go on with the run in this folder,\ninstead of CONFIG")
      ->excludes("--run-dir");
  command->add_option("--progress", options->progress, "auto, bar, plain, json or none (on stderr)")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Close with one JSON object instead of the summary");
  command->add_flag("--verify", options->verify, "Check the data files' SHA-256");
  command->callback([&action, options] { action = [options] { return run_train(*options); }; });
}

}  // namespace bantam::cli
