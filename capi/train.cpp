// Whole runs: run::train, its events and its outcome.
#include "bantam/run/train/train.h"

#include <optional>
#include <string>

#include "bantam/capi/events.h"
#include "bantam/capi/handles.h"
#include "bantam/capi/status.h"
#include "bantam/run/train/run_directory.h"

using namespace bantam;
using namespace bantam::capi;

namespace {

/// The run's own words, beside the trainer's.
class RunEvents : public run::RunObserver {
 public:
  explicit RunEvents(Events& events) : events_(events) { engine_.live.lend(); }

  void on_begin(const run::RunStart& beginning) override {
    engine_.runtime = std::shared_ptr<Runtime>(std::shared_ptr<void>(), &beginning.runtime);  // the run's own
    events_.set_engine(&engine_);
    events_.begin(beginning.config.train.epochs);
  }
  void on_warning(std::string_view text) override { events_.warn(text); }

 private:
  Events& events_;
  bantam_engine engine_;
};

/// The run to go on with; nothing where none is asked for, or none is in the folder, which may be there all the same.
std::optional<run::RunDirectory> resumed_run(const bantam_train_options& options) {
  if (options.resume == 0) return std::nullopt;
  if (options.folder == nullptr) throw BadArgument("options.resume needs options.folder: the run to go on with");
  if (!run::RunDirectory::holds_run(options.folder)) return std::nullopt;
  return run::RunDirectory::open(options.folder);
}

bantam_train_result result_of(const run::Outcome& outcome) {
  bantam_train_result result = capi::result_of(outcome.result);
  result.finished_before = outcome.finished_before ? 1 : 0;
  result.parameters = outcome.parameters;
  result.planned_peak_bytes = outcome.planned_peak_bytes;
  result.planned_pool_bytes = outcome.planned_pool_bytes;
  result.peak_bytes = outcome.memory.peak_bytes;
  result.pool_bytes = outcome.memory.peak_pool_bytes;
  return result;
}

run::Outcome train_to_end(const run::RunConfig& config, const bantam_train_options& options) {
  Events events(options.on_event, options.user);
  RunEvents observer(events);
  const std::optional<run::RunDirectory> resumed = resumed_run(options);
  Callback* const callbacks[] = {&events};
  return run::train(config,
                    {.threads = options.threads,
                     .folder = options.folder != nullptr ? options.folder : "",
                     .overwrite = options.overwrite != 0,
                     .stop = [&] { return events.stops(); }},
                    callbacks, {.observer = &observer, .resume = resumed ? &*resumed : nullptr, .stop_start = [&] {
                                  return events.stops();
                                }});
}

}  // namespace

bantam_status bantam_train(const bantam_config* config, const bantam_train_options* options,
                           bantam_train_result* result, char** run_folder) {
  return guarded([&] {
    const bantam_train_options given = read_struct(options, "options");
    if (given.threads < 0) throw BadArgument("options.threads is negative");
    check_struct(result, "result");
    const run::Outcome outcome = train_to_end(required(config, "config").config, given);
    write_struct(result, result_of(outcome), "result");
    if (run_folder != nullptr) *run_folder = copied_text(outcome.folder.string());
  });
}
