// From a configuration to a run that is saved.
#include "bantam/run/train.h"

#include "bantam/run/session/training_run.h"

namespace bantam::run {
namespace {

RunConfig settled_config(const RunConfig& config, RunObserver& observer) {
  require_device(config);
  if (!config.data) config.document.root().fail_at_key("missing key 'data': training needs data");
  const Settled settled = settle(config);
  const RunConfig closed = with_settled(config, settled);
  observer.on_settled(closed, settled);
  return closed;
}

TrainOutcome outcome_of(const RunConfig& config, const RunDirectory& directory, const TrainingRun& run,
                        TrainResult result) {
  const Device device = config.device;
  Runtime& runtime = run.runtime();
  TrainOutcome outcome{.config = config,
                       .folder = directory.path(),
                       .result = result,
                       .effective_batch = run.effective_batch(),
                       .parameters = run.parameter_count(),
                       .memory = runtime.allocator(device).stats(),
                       .planned_peak_bytes = run.plan().peak_bytes,
                       .planned_pool_bytes = run.plan().pool_bytes,
                       .process = runtime.process_memory(device),
                       .overhead = runtime.memory_overhead(device)};
  if (!device.is_cuda()) return outcome;
  outcome.host = runtime.allocator(Device::cpu()).stats();
  outcome.pinned = runtime.pinned_allocator().stats();
  return outcome;
}

}  // namespace

TrainOutcome train(const RunConfig& config, const TrainRunOptions& options, std::span<Callback* const> callbacks) {
  RunObserver silent;
  RunObserver& observer = options.observer != nullptr ? *options.observer : silent;
  const RunConfig closed = settled_config(config, observer);
  if (options.resume == nullptr) RunDirectory::require_free(options.run_dir, options.overwrite);
  TrainingRun run(closed, options.threads, options.resume, observer);
  observer.on_ready();
  std::optional<RunDirectory> made;
  if (options.resume == nullptr) made.emplace(RunDirectory::create(options.run_dir, closed.name, options.overwrite));
  const RunDirectory& directory = made ? *made : *options.resume;
  observer.on_begin({.config = closed, .directory = directory, .plan = run.plan(), .runtime = run.runtime()});
  const TrainResult result = run.train(directory, options.stop, callbacks);
  return outcome_of(closed, directory, run, result);
}

}  // namespace bantam::run
