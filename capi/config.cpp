// Configurations, with the caller's samples or the files that they name, and plans of them.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bantam/capi/batches.h"
#include "bantam/capi/handles.h"
#include "bantam/capi/samples.h"
#include "bantam/capi/status.h"
#include "bantam/run/config/given_config.h"
#include "bantam/run/plan.h"

using namespace bantam;
using namespace bantam::capi;

namespace {

/// `release` of samples is called once whatever happens: readers are made before anything else can throw.
std::optional<run::GivenData> given_of(const bantam_config_options& options) {
  std::shared_ptr<const SampleReader> train, validation;
  std::exception_ptr refused;
  try {
    if (options.train != nullptr) train = samples_reader(*options.train);
  } catch (...) {
    refused = std::current_exception();
  }
  if (options.validation != nullptr) validation = samples_reader(*options.validation, train.get());
  if (refused) std::rethrow_exception(refused);
  if (options.train == nullptr && (options.validation != nullptr || options.batch_size != 0))
    throw BadArgument("options.validation and options.batch_size go with options.train, which is null");
  if (options.batch_size < 0) throw BadArgument("options.batch_size is negative");
  if (train == nullptr) return std::nullopt;
  return run::GivenData{.samples = {train, validation}, .batch_size = options.batch_size};
}

bantam_config* made_config(const std::string& text, const std::filesystem::path& path,
                           const bantam_config_options& options, const std::optional<run::GivenData>& given) {
  const std::vector<std::string> overrides = texts(options.overrides, options.override_count, "options.overrides");
  auto made = std::make_unique<bantam_config>(bantam_config{
      given ? run::parse_run_config(text, path, overrides, *given) : run::parse_run_config(text, path, overrides), {}});
  if (given)
    for (const auto& reader : {given->samples.train, given->samples.validation})
      if (reader != nullptr)
        for (const SampleField& target : reader->facts().targets)
          require_read(target.name, made->config.train.loss, made->config.model.graph.output_shape(), "samples'", true);
  return made.release();
}

bantam_memory_plan plan_of(const run::Plan& planned) {
  const run::PlanRow& row = planned.rows.at(0);
  const CategoryBytes& bytes = row.planned.by_category;
  bantam_memory_plan plan = BANTAM_INIT(bantam_memory_plan);
  plan.batch_size = row.planned.batch;
  plan.peak_bytes = row.planned.peak_bytes;
  plan.pool_bytes = row.planned.pool_bytes;
  plan.parameter_bytes = bytes[Category::parameter];
  plan.gradient_bytes = bytes[Category::gradient];
  plan.optimizer_bytes = bytes[Category::optimizer];
  plan.activation_bytes = bytes[Category::activation];
  plan.workspace_bytes = bytes[Category::workspace];
  plan.input_bytes = bytes[Category::input];
  plan.other_bytes = bytes[Category::other];
  plan.fits = row.planned.fits ? 1 : 0;
  copy_text(plan.recompute, sizeof plan.recompute, run::to_string(row.planned.recompute));
  return plan;
}

}  // namespace

bantam_status bantam_config_from_text(const char* yaml, const bantam_config_options* options, bantam_config** config) {
  return guarded([&] {
    const bantam_config_options given = read_struct(options, "options");
    const std::optional<run::GivenData> samples = given_of(given);
    required(config, "config") = nullptr;
    *config = made_config(&required(yaml, "yaml"), given.name != nullptr ? given.name : "config.yaml", given, samples);
  });
}

bantam_status bantam_config_from_file(const char* path, const bantam_config_options* options, bantam_config** config) {
  return guarded([&] {
    const bantam_config_options given = read_struct(options, "options");
    const std::optional<run::GivenData> samples = given_of(given);
    required(config, "config") = nullptr;
    const std::filesystem::path file = &required(path, "path");
    *config = made_config(ConfigDocument::read_text(file), file, given, samples);
  });
}

void bantam_config_destroy(bantam_config* config) {
  destroy(config, "bantam_config_destroy: this is no handle of the program's");
}

bantam_status bantam_config_resolved(const bantam_config* config, char** yaml) {
  return guarded([&] { return_text(yaml, "yaml", required(config, "config").config.document.resolved_yaml()); });
}

bantam_status bantam_plan(const bantam_config* config, uint64_t memory, bantam_memory_plan* plan) {
  return guarded([&] {
    const run::RunConfig& planned = required(config, "config").config;
    required(plan, "plan");
    write_struct(plan, plan_of(run::plan(planned, run::plan_target(planned, std::nullopt), {.memory = memory})),
                 "plan");
  });
}
