// Decisions in the order in which they depend on each other.
#include "bantam/run/fit/decisions.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/config/config_path.h"
#include "bantam/base/counted.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/models/yaml/model_weights.h"
#include "bantam/run/fit/run_plan.h"
#include "bantam/run/fit/run_warnings.h"
#include "bantam/run/weights/initial_weights.h"

namespace bantam::run {
namespace {

void settle_recompute(const RunConfig& config, std::int64_t batch, std::uint64_t bytes, Settled& settled) {
  const RecomputeChoice choice = choose_for_run(config, batch, bytes);
  const std::string policy = wrapped(choice.recompute, 66, "             ");
  if (!choice.fits) {
    // A limit may still hold with `on_oom`, and says itself where it does not; a budget is a promise.
    if (config.memory.budget == 0 || config.memory.on_oom != OnOutOfMemory::fail) return;
    const std::uint64_t needed = plan_run(variant(config, batch, choice.recompute)).pool_bytes;
    throw OutOfMemory(
        fmt::format("batch size {} does not fit {}: the least found is a pool of {}\n  with recompute: {}", batch,
                    format_byte_size(bytes), format_byte_size(needed), policy),
        {.requested_bytes = needed, .limit_bytes = bytes});
  }
  if (to_yaml(choice.recompute) == "none") return;
  settled.messages.push_back(
      fmt::format("recompute:   {}\n             to fit {}: a step's peak {} by plan,\n             {} time predicted",
                  policy, format_byte_size(bytes), format_byte_size(choice.peak_bytes),
                  predicted_percent(choice.extra_work, rates_of(config, config.precision).estimate)));
  settled.recompute = choice;
}

/// Whether a path that depends on the current folder leads to a file.
bool is_found_from_here(const models::ModelWeights& weights) {
  std::error_code error;
  const std::filesystem::path path = weights.file;
  return path.is_relative() && std::filesystem::exists(path, error);
}

}  // namespace

Settled settle(const RunConfig& config) {
  Settled settled;
  const PlanTarget target = measured_target(config);
  if (auto refused = refused_shares(config, target, 0)) throw *refused;
  const std::uint64_t bytes = bytes_to_fit(config, target);
  if (config.data->pipeline.batch_size_is_auto) {
    settled.batch = choose_batch(config, bytes, bytes > 0);
    settled.messages.push_back(to_text(*settled.batch, bytes));
    if (std::string warning = few_updates_warning(config, settled.batch->batch); !warning.empty())
      settled.warnings.push_back(std::move(warning));
  } else if (!config.recompute_given && bytes > 0) {
    settle_recompute(config, config.data->pipeline.batch_size, bytes, settled);
  }
  if (config.model.weights && (config.model.weights->sha256.empty() || is_found_from_here(*config.model.weights))) {
    settled.weights = config.model.weights;
    if (settled.weights->sha256.empty()) settled.weights->sha256 = sha256_of_weights(settled.weights->file);
  }
  const std::int64_t batch = settled.batch ? settled.batch->batch : config.data->pipeline.batch_size;
  for (std::string& warning : run_warnings(config, batch)) settled.warnings.push_back(std::move(warning));
  return settled;
}

bool packs_into_run(const DataOptions& data) {
  return data.pipeline.cache == CacheKind::disk && data.pipeline.cache_folder.empty();
}

namespace {

/// In YAML's flow style: the folders that had relative paths. Empty: there were no such paths.
std::string search_paths_of(const ConfigDocument& document) {
  std::string list;
  for (const std::filesystem::path& folder : folders_of_found_paths(document)) {
    std::string quoted;
    for (const char c : folder.string()) quoted += c == '\'' ? "''" : std::string(1, c);
    list += fmt::format("{}'{}'", list.empty() ? "" : ", ", quoted);
  }
  return list.empty() ? "" : "[" + list + "]";
}

}  // namespace

RunConfig with_data_keys(const RunConfig& config) {
  RunConfig other = config;
  (void)open_splits(*config.data, config.seed);  // the values are of the training samples that a split leaves
  for (const auto& [key, value] : config.data->source.train->settled_keys())
    other.document = other.document.with_value("data." + key, value);
  if (!config.train.one_class && has_one_class(config))
    other.document = other.document.with_value("train.one_class", "true");  // of readers without the data
  if (const std::string folders = search_paths_of(config.document); !folders.empty())
    other.document = other.document.with_value("search_paths", folders);
  return other;
}

RunConfig with_settled(const RunConfig& config, const Settled& settled) {
  RunConfig other = config;
  const auto write = [&other](std::string_view path, const std::string& value) {
    other.document = other.document.with_value(path, value);
  };
  write("device", to_string(config.device));
  write("precision", std::string(to_string(config.precision)));
  if (settled.batch) {
    other.data->pipeline.batch_size = settled.batch->batch;
    other.data->pipeline.batch_size_is_auto = false;
    write("data.pipeline.batch.size", fmt::format("{}", settled.batch->batch));
    settle_epochs(other, settled.batch->batch);
  }
  if (settled.weights) {
    other.model.weights = settled.weights;
    // The run may be resumed from another folder.
    models::ModelWeights found = *settled.weights;
    found.file = std::filesystem::absolute(found.file).lexically_normal().string();
    write("model.weights", models::to_yaml(found));
  }
  if (settled.recompute) {
    other.recompute = settled.recompute->recompute;
    other.recompute_given = true;
    write("recompute", to_yaml(other.recompute));
  }
  return other;
}

}  // namespace bantam::run
