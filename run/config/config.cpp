// A program's configuration: a handle of the typed one.
#include "bantam/run/config/run_config.h"
#include "bantam/run/run.h"

namespace bantam::run {

Config Config::from_file(const std::filesystem::path& path, std::span<const std::string> overrides) {
  return Config(std::make_shared<const RunConfig>(read_run_config(path, overrides)));
}

Config Config::from_text(std::string_view text, const std::filesystem::path& name,
                         std::span<const std::string> overrides) {
  return Config(std::make_shared<const RunConfig>(parse_run_config(text, name, overrides)));
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

}  // namespace bantam::run
