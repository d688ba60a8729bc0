// Decisions in the order in which they depend on each other.
#include "bantam/run/fit/settle.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/counted.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/models/yaml/model_weights.h"
#include "bantam/run/fit/run_plan.h"
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
      fmt::format("recompute:   {}\n             to fit {}: a step's peak {} by plan,\n             {} time predicted", policy,
                  format_byte_size(bytes), format_byte_size(choice.peak_bytes),
                  predicted_percent(choice.extra_work, rates_of(config, config.precision).estimate)));
  settled.recompute = choice;
}

/// What is asked for at updates that the run does not reach.
void warn_of_unreached(const RunConfig& config, std::int64_t batch, std::vector<std::string>& warnings) {
  const std::int64_t each = updates_per_epoch(config, batch);
  std::int64_t updates = updates_of_run(config, batch);
  if (config.train.max_updates > 0) updates = std::min(updates, config.train.max_updates);
  const auto warn = [&](std::string_view key, std::int64_t at, std::string_view effect) {
    warnings.push_back(
        fmt::format("{}: the run has only {}, not {}: {}", key, counted(updates, "update"), format_count(at), effect));
  };
  if (const auto& prune = config.train.optimizer.prune) {
    if (prune->begin >= updates)
      warn("train.prune.begin", prune->begin, "nothing is pruned");
    else if (prune->schedule == PruneSchedule::polynomial && prune->end > updates)
      warn("train.prune.end", prune->end, "the final sparsity is not reached");
  }
  const auto& ema = config.train.optimizer.ema;
  if (ema && ema->every > updates) warn("train.ema.every", ema->every, "weights are never averaged");
  for (const GroupConfig& group : config.train.groups) {
    const std::int64_t until =
        group.frozen_until.count * (group.frozen_until.unit == Duration::Unit::epochs ? each : 1);
    if (until >= updates && group.group.freeze)
      warn(fmt::format("train.groups, until of \"{}\"", group.group.match), until, "they stay frozen to its end");
  }
}

/// Losses of logits apply the function themselves that turns logits into probabilities.
void warn_of_probabilities(const RunConfig& config, std::vector<std::string>& warnings) {
  const Layer& last = *config.model.graph.nodes().back().layer;
  const std::string_view loss = config.train.loss.loss->kind();
  const auto* activation = last.options<ActivationOptions>();
  const auto* dense = last.options<DenseOptions>();
  const Activation function = activation ? activation->kind : dense ? dense->activation.kind : Activation::none;
  const bool sigmoid = loss == "binary_cross_entropy" && function == Activation::sigmoid;
  if (!sigmoid && !(loss == "softmax_cross_entropy" && last.kind() == "softmax")) return;
  warnings.push_back(fmt::format("the model ends with a {}, and the loss {} applies one itself: leave the model's out",
                                 sigmoid ? "sigmoid" : "softmax", loss));
}

/// Pixels as they are stored, 0 to 255, are far from what initial weights and usual learning rates are made for; with
/// the mean and deviation of scaled ones they are farther still.
void warn_of_unscaled_pixels(const RunConfig& config, std::vector<std::string>& warnings) {
  constexpr double kLargestPixel = 255, kMost = 64;  // white is less where images of little contrast are normalised
  const DatasetFacts facts = config.data->source.train->facts();
  if (facts.image_dtype != DType::uint8 || facts.image_shape.rank() != 3) return;
  const NormalizeOptions& normalize = config.data->pipeline.normalize;
  double largest = 0;
  for (std::size_t c = 0; c < std::max(normalize.mean.size(), normalize.std.size()); ++c) {
    const double mean = normalize.mean[normalize.mean.size() == 1 ? 0 : c];
    const double deviation = normalize.std[normalize.std.size() == 1 ? 0 : c];
    largest = std::max(largest, std::abs(kLargestPixel * normalize.scale - mean) / deviation);
  }
  if (largest <= kMost) return;
  warnings.push_back(
      fmt::format("pixels reach the network as numbers up to {:.4g}: `normalize: {{scale: 0.00392156862745098}}` makes "
                  "bytes 0 to 1, and `bantam data` measures their mean and std",
                  largest));
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
  for (std::string& note : data_notes(*config.data)) settled.warnings.push_back(std::move(note));
  warn_of_probabilities(config, settled.warnings);
  warn_of_unscaled_pixels(config, settled.warnings);
  warn_of_unreached(config, settled.batch ? settled.batch->batch : config.data->pipeline.batch_size, settled.warnings);
  return settled;
}

bool packs_into_run(const DataOptions& data) {
  return data.pipeline.cache == CacheKind::disk && data.pipeline.cache_folder.empty();
}

RunConfig with_data_keys(const RunConfig& config) {
  RunConfig other = config;
  (void)open_splits(*config.data, config.seed);  // the values are of the training samples that a split leaves
  for (const auto& [key, value] : config.data->source.train->settled_keys())
    other.document = other.document.with_value("data." + key, value);
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
