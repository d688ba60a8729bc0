// The public functions of whole runs: values in, values out.
#include "bantam/run/run.h"

#include <utility>

#include "bantam/run/config/run_config.h"
#include "bantam/run/plan.h"
#include "bantam/run/schema.h"
#include "bantam/run/train/run_directory.h"
#include "bantam/run/train/run_observer.h"
#include "bantam/run/train/train.h"

namespace bantam::run {

/// Makes and opens a Config.
struct ConfigAccess {
  static Config make(RunConfig config) { return Config(std::make_shared<const RunConfig>(std::move(config))); }
  static const RunConfig& of(const Config& config) { return *config.config_; }
};

namespace {

class Warnings : public RunObserver {
 public:
  explicit Warnings(const std::function<void(std::string_view)>& tell) : tell_(tell) {}
  void on_settled(const RunConfig&, const Settled& settled) override {
    for (const std::string& warning : settled.warnings) on_warning(warning);
  }
  void on_warning(std::string_view text) override {
    if (tell_) tell_(text);
  }

 private:
  const std::function<void(std::string_view)>& tell_;
};

Outcome run_to_end(const RunConfig& config, const RunDirectory* resumed, const TrainOptions& options,
                   std::span<Callback* const> callbacks) {
  Warnings warnings(options.on_warning);
  TrainOutcome ran = train(config,
                           {.threads = options.threads,
                            .run_dir = options.folder,
                            .overwrite = options.overwrite,
                            .resume = resumed,
                            .stop = options.stop,
                            .observer = &warnings},
                           callbacks);
  return {.config = ConfigAccess::make(std::move(ran.config)),
          .folder = std::move(ran.folder),
          .finished_before = ran.finished_before,
          .result = std::move(ran.result),
          .effective_batch = ran.effective_batch,
          .parameters = ran.parameters,
          .planned_peak_bytes = ran.planned_peak_bytes,
          .planned_pool_bytes = ran.planned_pool_bytes,
          .memory = ran.memory,
          .process = ran.process,
          .overhead = std::move(ran.overhead)};
}

}  // namespace

Config::Config(std::shared_ptr<const RunConfig> config) : config_(std::move(config)) {}

Config Config::from_file(const std::filesystem::path& path, std::span<const std::string> overrides) {
  return ConfigAccess::make(read_run_config(path, overrides));
}

Config Config::from_text(std::string_view text, const std::filesystem::path& name,
                         std::span<const std::string> overrides) {
  return ConfigAccess::make(parse_run_config(text, name, overrides));
}

const std::string& Config::name() const { return config_->name; }
Device Config::device() const { return config_->device; }
std::uint64_t Config::seed() const { return config_->seed; }
std::int64_t Config::epochs() const { return config_->train.epochs; }
std::optional<std::int64_t> Config::batch_size() const {
  if (!config_->data || config_->data->pipeline.batch_size_is_auto) return std::nullopt;
  return config_->data->pipeline.batch_size;
}
const Graph& Config::graph() const { return config_->model.graph; }
ModelOptions Config::model_options() const { return run::model_options(*config_); }
const OptimizerOptions& Config::optimizer_options() const { return config_->train.optimizer; }
const LossOptions& Config::loss_options() const { return config_->train.loss; }
std::unique_ptr<Runtime> Config::make_runtime(int threads) const { return run::make_runtime(*config_, threads); }
std::string Config::resolved_yaml() const { return config_->document.resolved_yaml(); }

Outcome train(const Config& config, const TrainOptions& options, std::span<Callback* const> callbacks) {
  return run_to_end(ConfigAccess::of(config), nullptr, options, callbacks);
}

Outcome resume(const std::filesystem::path& folder, const TrainOptions& options, std::span<Callback* const> callbacks) {
  const RunDirectory directory = RunDirectory::open(folder);
  return run_to_end(read_run_config(directory.config(), {}), &directory, options, callbacks);
}

MemoryPlan plan(const Config& config, const PlanRequest& request) {
  const RunConfig& internal = ConfigAccess::of(config);
  PlanOptions options{.memory = request.memory};
  options.grid.batches = request.batches;
  options.grid.precisions = request.precisions;
  options.grid.recomputes = request.recomputes;
  const Plan planned = plan(internal, plan_target(internal, std::nullopt), options);
  MemoryPlan result{.rows = {}, .pool_bytes_at_most = planned.fit.pool};
  for (const PlanRow& row : planned.rows)
    result.rows.push_back({.batch = row.step.batch,
                           .precision = row.step.precision,
                           .recompute = row.step.recompute,
                           .peak_bytes = row.run ? row.run->peak_bytes : row.plan.peak_bytes,
                           .pool_bytes = row.reserved_bytes(),
                           .by_category = row.run ? row.run->by_category : row.plan.by_category,
                           .fits = row.fits});
  return result;
}

std::string config_schema() { return schema_text(); }
std::string config_reference() { return reference_text(); }

}  // namespace bantam::run
