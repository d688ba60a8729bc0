// One Progress for all runs, one TrainPrinter for each.
#include "bantam/cli/sweep/sweep_session.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>

#include <fmt/format.h>

#include "bantam/base/clock.h"
#include "bantam/base/counted.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/text.h"
#include "bantam/cli/print/oom_message.h"
#include "bantam/cli/print/output.h"
#include "bantam/cli/signals.h"
#include "bantam/cli/sweep/sweep_report.h"
#include "bantam/cli/train_printer.h"
#include "bantam/run/sweep/sweep_summary.h"
#include "bantam/run/sweep/train_sweep.h"
#include "bantam/run/train/run_lock.h"

namespace bantam::cli {
namespace {

using Clock = std::chrono::steady_clock;

class SweepPrinter : public SweepObserver {
 public:
  SweepPrinter(const Sweep& sweep, Progress& progress, StopOnSignal& stop)
      : sweep_(sweep), progress_(progress), stop_(stop) {}

  void on_ended_before(std::size_t) override { ++ended_before_; }

  RunListeners on_begin(std::size_t index, const RunConfig& config) override {
    report_ended_before();
    stop_.begin_start();
    begun_ = Clock::now();
    config_ = config;
    printer_.emplace(progress_, stop_);
    callback_ = &printer_->shown;
    progress_.run_begin(state_of(index));
    return {.observer = &*printer_, .callbacks = {callback_}};
  }

  void on_end(std::size_t index, const run::Outcome& outcome) override {
    seconds_ += seconds_since(begun_);
    wall_.push_back(seconds_since(begun_));
    ++ended_;
    SweepRunState state = state_of(index);
    state.seconds = seconds_since(begun_);
    state.eta_seconds = seconds_ / static_cast<double>(ended_) * static_cast<double>(state.runs - state.run);
    const Metrics& last = outcome.result.validation.samples > 0 ? outcome.result.validation : outcome.result.train;
    if (const std::string_view name = run::accuracy_name(*outcome.config); !name.empty())
      state.values.emplace_back(name, last.accuracy);
    state.values.emplace_back("loss", last.loss);
    progress_.run_end(state);
  }

  void on_failed(std::size_t index, const std::exception& error) override {
    progress_.close();
    progress_.warning(fmt::format("run {} of {} ({}) has failed: {}", index + 1, sweep_.runs().size(),
                                  sweep_.text_of(sweep_.runs()[index]), shown_message(explained(error))));
  }

  /// Wall seconds of each run that has ended in this session.
  const std::vector<double>& wall() const { return wall_; }

 private:
  SweepRunState state_of(std::size_t index) const {
    return {.run = static_cast<std::int64_t>(index) + 1,
            .runs = std::ssize(sweep_.runs()),
            .setting = sweep_.text_of(sweep_.runs()[index])};
  }

  void report_ended_before() {
    if (ended_before_ > 0)
      progress_.message(fmt::format("{} of {} in {} ended before", ended_before_, counted(sweep_.runs().size(), "run"),
                                    sweep_.folder().string()));
    ended_before_ = 0;
  }

  /// Memory that ran out with what would fit.
  std::string explained(const std::exception& error) const {
    const auto* memory = dynamic_cast<const OutOfMemory*>(&error);
    if (memory == nullptr || !config_) return error.what();
    return explain_training(*memory, printer_->config_or(*config_)).what();
  }

  const Sweep& sweep_;
  Progress& progress_;
  StopOnSignal& stop_;
  std::int64_t ended_before_ = 0, ended_ = 0;  // the second of this session
  double seconds_ = 0;                         // of those that ended in this session
  std::vector<double> wall_;                   // of each of those
  Clock::time_point begun_;
  std::optional<RunConfig> config_;
  std::optional<TrainPrinter> printer_;
  Callback* callback_ = nullptr;
};

}  // namespace

SweepPlan plan_of(const CommonOptions& options) {
  return {.config = ConfigDocument::read_text(options.config),
          .config_path = options.config,
          .overrides = all_overrides(options)};
}

int train_and_print(const Sweep& sweep, const SweepFlags& flags) {
  const Clock::time_point start = Clock::now();
  std::signal(SIGPIPE, SIG_IGN);  // a reader of the progress that goes away must not end the sweep
  StopOnSignal stop;
  Progress progress(parse_progress_mode(flags.progress, stderr), stderr);
  SweepPrinter printer(sweep, progress, stop);
  const auto asked = [&stop] { return stop.requested(); };
  const SweepOutcome outcome = train_sweep(sweep, {.threads = flags.threads,
                                                   .stop = asked,
                                                   .stop_start = asked,
                                                   .command = run::command_line(),
                                                   .observer = &printer});
  progress.close();
  stop.note_saved();
  const SweepSummary summary = summary_of(sweep, outcome.failures);
  const SweepReport report{.sweep = sweep,
                           .summary = summary,
                           .stopped = outcome.stopped,
                           .seconds = seconds_since(start),
                           .wall = spread_of(printer.wall())};
  write_text(flags.json ? json_text(sweep_json(report)) + "\n" : sweep_text(report));
  std::fflush(stdout);
  if (outcome.stopped) return stop_exit_code(stop.signal());
  return outcome.failures.empty() ? 0 : 1;
}

}  // namespace bantam::cli
