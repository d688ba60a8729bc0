// One function a warning, and the list of them.
#include "bantam/run/fit/warnings.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/delivery/data_config.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/layers/norm_options.h"
#include "bantam/engine/metrics/metric_readers.h"
#include "bantam/run/fit/fitting.h"

namespace bantam::run {
namespace {

constexpr std::int64_t kFewUpdates = 20;  // an epoch: fewer, and the weights hardly move in it

/// Updates of the run, up to train.max_updates.
std::int64_t updates_in_all(const RunConfig& config, std::int64_t batch) {
  const std::int64_t updates = updates_of_run(config, batch), most = config.train.max_updates;
  return most > 0 ? std::min(updates, most) : updates;
}

/// Warns of keys that take effect at updates that the run does not reach.
void warn_of_unreached(const RunConfig& config, std::int64_t batch, std::vector<std::string>& warnings) {
  const std::int64_t each = updates_per_epoch(config, batch), updates = updates_in_all(config, batch);
  const auto warn = [&](std::string_view key, std::int64_t at, std::string_view effect) {
    warnings.push_back(fmt::format("{}: the run has only {} updates, not {}: {}", key, format_count(updates),
                                   format_count(at), effect));
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

/// Warns of a sigmoid or softmax before a loss that applies one itself.
void warn_of_probabilities(const RunConfig& config, std::int64_t, std::vector<std::string>& warnings) {
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

/// Warns of a top_k that counts every label.
void warn_of_top_k(const RunConfig& config, std::int64_t, std::vector<std::string>& warnings) {
  const Shape output = config.model.graph.output_shape();
  const std::int64_t classes = output.rank() > 0 ? output[output.rank() - 1] : 0;
  for (const MetricPtr& metric : config.train.loss.metrics)
    if (const std::int64_t k = k_of(*metric); classes > 0 && k >= classes)
      warnings.push_back(fmt::format(
          "train.metrics: top_k of {} is always 1: the model has {} outputs, and any label is among all of them{}", k,
          classes,
          classes > 2 ? fmt::format(". `top_k: {{k: {}}}` counts fewer", std::min<std::int64_t>(classes - 1, 3)) : ""));
}

/// Pixels as they are stored, 0 to 255, are far from what initial weights and usual learning rates are made for; with
/// the mean and deviation of scaled ones they are farther still.
void warn_of_unscaled_pixels(const RunConfig& config, std::int64_t, std::vector<std::string>& warnings) {
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

/// Running statistics begin at mean 0 and variance 1, of which (1 - rate)^batches is left at the run's end: more than
/// a twentieth below three times 1/rate batches. Those of pretrained and frozen norms are right from the beginning, and
/// norms without a momentum of their own warm up.
void warn_of_slow_statistics(const RunConfig& config, std::int64_t batch, std::vector<std::string>& warnings) {
  constexpr double kFollowed = 3;
  if (config.is_trial || config.model.weights || !config.train.initial_weights.empty()) return;
  const auto batches = static_cast<double>(updates_in_all(config, batch) * config.train.accumulate);
  const Graph& graph = config.model.graph;
  int norms = 0, slow = 0;
  double slowest = 1;
  for (NodeId node = 1; node <= graph.output(); ++node) {
    const BatchNormOptions* options = batch_norm_options(*graph.node(node).layer);
    if (options == nullptr || options->frozen) continue;
    ++norms;
    if (!options->rate || batches * static_cast<double>(*options->rate) >= kFollowed) continue;
    ++slow;
    slowest = std::min(slowest, static_cast<double>(*options->rate));
  }
  if (slow == 0) return;
  const double enough = std::floor(100 * (1 - kFollowed / std::max(batches, kFollowed))) / 100;
  const std::string value = enough > 0 ? fmt::format("{:.3g} or less, or auto,", enough) : "auto";
  warnings.push_back(fmt::format(
      "batch norm: {} of {} norms have momentum {:.4g} (rate {:.4g}), and the run has only {} batches: in evaluations "
      "{:.0f}% of their running statistics would still be the initial ones. momentum: {} suits this run; with {:.4g} "
      "it needs {} batches",
      slow, norms, 1 - slowest, slowest, format_count(static_cast<std::int64_t>(batches)),
      100 * std::pow(1 - slowest, batches), value, 1 - slowest,
      format_count(static_cast<std::int64_t>(std::ceil(kFollowed / slowest - 1e-3)))));
}

/// Class numbers of samples that are evenly spread over the set; empty where there are none, or they cannot be read.
std::vector<std::int32_t> spread_labels(const SampleReader& samples) {
  constexpr std::int64_t kMost = 256;
  const DatasetFacts facts = samples.facts();
  const auto labels = std::ranges::find(facts.targets, kLabels, &SampleField::name);
  if (labels == facts.targets.end() || labels->shape.rank() > 0 || labels->dtype != DType::int32) return {};
  std::vector<std::vector<std::byte>> memory;
  for (const SampleField& field : facts.targets)
    memory.emplace_back(field.encoding == FieldEncoding::values ? field.bytes() : 0);
  const std::vector<std::span<std::byte>> targets(memory.begin(), memory.end());
  const auto place = static_cast<std::size_t>(labels - facts.targets.begin());
  const std::int64_t count = std::min(facts.size, kMost);
  std::vector<std::int32_t> read(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    samples.read_targets(i * facts.size / count, targets);
    std::memcpy(&read[static_cast<std::size_t>(i)], memory[place].data(), sizeof(std::int32_t));
  }
  return read;
}

/// Whether each class stands in one row, and two of them are long enough for that to be no chance.
bool in_class_order(const std::vector<std::int32_t>& labels) {
  constexpr int kLong = 8;
  std::map<std::int32_t, int> counts;
  std::size_t rows = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    ++counts[labels[i]];
    if (i == 0 || labels[i] != labels[i - 1]) ++rows;
  }
  return rows == counts.size() && std::ranges::count_if(counts, [](const auto& c) { return c.second >= kLong; }) >= 2;
}

/// Warns of batches of one class each: training then learns the last class that it has seen.
void warn_of_class_order(const RunConfig& config, std::int64_t batch, std::vector<std::string>& warnings) {
  const PipelineOptions& pipeline = config.data->pipeline;
  const std::int64_t window = pipeline.shuffle ? pipeline.shuffle->buffer : 1;
  if (pipeline.sampling.draw != EpochSampling::Draw::each || window == 0) return;
  const SampleReader& samples = *config.data->source.train;
  const DatasetFacts facts = samples.facts();
  const auto classes = static_cast<std::int64_t>(facts.class_names.size());
  // A window as long as a class mixes two of them at least.
  if (classes < 2 || facts.size <= batch || window >= facts.size / classes) return;
  try {
    if (!samples.sorted_by_class() && !in_class_order(spread_labels(samples))) return;
  } catch (const Error&) {  // opening the data says what is wrong with them
    return;
  }
  warnings.push_back(
      fmt::format("the training samples stand class after class, and the pipeline has {}: batches would be of one "
                  "class each. Write "
                  "`- shuffle` into data.pipeline",
                  pipeline.shuffle ? fmt::format("a shuffle of only {} samples at a time", format_count(window))
                                   : std::string("no shuffle")));
}

/// Passes on the notes of the readers: guesses, values passed over, oddities.
void warn_of_data(const RunConfig& config, std::int64_t, std::vector<std::string>& warnings) {
  try {
    std::ranges::move(data_notes(*config.data), std::back_inserter(warnings));
  } catch (const DataError&) {  // whoever reads the samples reports it
  }
}

struct Warning {
  void (*warn)(const RunConfig& config, std::int64_t batch, std::vector<std::string>& warnings);
  bool needs_batch = false;
};
constexpr Warning kWarnings[] = {
    {warn_of_data},        {warn_of_probabilities},         {warn_of_top_k},          {warn_of_unscaled_pixels},
    {warn_of_class_order}, {warn_of_slow_statistics, true}, {warn_of_unreached, true}};

}  // namespace

std::vector<std::string> run_warnings(const RunConfig& config) {
  std::vector<std::string> warnings;
  const std::int64_t batch = config.data->pipeline.batch_size;
  for (const Warning& warning : kWarnings)
    if (!warning.needs_batch || !config.data->pipeline.batch_size_is_auto) warning.warn(config, batch, warnings);
  return warnings;
}

std::string few_updates_warning(const RunConfig& config, std::int64_t batch) {
  const std::int64_t updates = updates_per_epoch(config, batch);
  if (updates >= kFewUpdates) return "";
  const std::int64_t samples = epoch_samples(*config.data);
  const std::int64_t most = samples / (kFewUpdates * config.train.accumulate * config.train.replicas);
  const std::int64_t given = config.data->pipeline.batch_multiple_of, unit = given > 0 ? given : kUsualBatchUnit;
  const std::int64_t less = given == 0 && most < unit ? most : most / unit * unit;
  std::string text = fmt::format("only {} update{} an epoch with this batch size", updates, updates == 1 ? "" : "s");
  if (less > 0)
    text += fmt::format(";\n  batch: {{size: auto, max: {}}} makes {}", less, updates_per_epoch(config, less));
  return text;
}

}  // namespace bantam::run
