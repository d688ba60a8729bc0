// The comparison of two sessions' configurations: which keys may change between them, and which may not.
#include "bantam/run/train/fingerprint.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace bantam::run {
namespace {

// Keys that change no bit of an update, or that a run may have more of.
constexpr auto kFree = std::to_array<std::string_view>({"version",
                                                        "search_paths",
                                                        "device",
                                                        "memory",
                                                        "recompute",
                                                        "algorithms",
                                                        "checkpoint",
                                                        "log",
                                                        "data.decode",  // add_data: who decodes in fact
                                                        "data.on_error",
                                                        "data.path",
                                                        "data.validation.path",
                                                        "data.verify",
                                                        "data.pipeline.cache",
                                                        "data.pipeline.prefetch",
                                                        "model.name",
                                                        "model.weights.file",
                                                        "train.callbacks",
                                                        "train.ema.evaluate",
                                                        "train.epochs",
                                                        "train.evaluate",
                                                        "train.log_every",
                                                        "train.max_time",
                                                        "train.max_updates",
                                                        "train.mode",
                                                        "train.split",
                                                        "train.stop_early",
                                                        "train.updates"});

bool is_free(std::string_view path) {
  return std::ranges::any_of(kFree, [path](std::string_view key) {
    return path.starts_with(key) && (path.size() == key.size() || path[key.size()] == '.');
  });
}

/// Keys that are free unless a schedule follows the evaluations.
bool is_of_evaluations(std::string_view path) {
  return std::ranges::any_of(
      std::to_array<std::string_view>({"train.evaluate", "train.ema.evaluate", "data.validation"}),
      [path](std::string_view key) { return path.starts_with(key); });
}

/// Stages of the pipeline go by their names: which of them are written out changes the numbers of the others.
std::pair<std::string, std::string> without_stage_number(const std::string& path, const std::string& value) {
  constexpr std::string_view kStages = "data.pipeline.";
  if (!path.starts_with(kStages)) return {path, value};
  const std::size_t end = path.find('.', kStages.size());
  if (end == std::string::npos) return {std::string(kStages) + value, "{}"};
  return {std::string(kStages) + path.substr(end + 1), value};
}

/// In which order training samples pass them: two that change one sample rarely commute. Empty below two.
std::string order_of(const Augmentations& augmentations) {
  std::string order;
  if (augmentations.size() < 2) return order;
  for (const auto& augmentation : augmentations) {
    if (!order.empty()) order += ", ";
    order += augmentation->name();
  }
  return order;
}

bool is_fact_of_data(std::string_view name) { return name.starts_with("data ("); }

}  // namespace

Fingerprint fingerprint_of(const RunConfig& config) {
  Fingerprint fingerprint;
  for (const auto& [path, value] : config.document.values()) {
    if (path == "train.replicas" && config.train.replicas == 1) continue;  // a run from before the key has one
    if (path == "train.gradients" && config.train.gradients == DType::float32) continue;  // nor has it these
    if (path == "train.one_class") continue;  // changes what is said, and no update
    if (path == "train.sync_batch_norm" && !config.train.sync_batch_norm) continue;
    auto entry = without_stage_number(path, value);
    if (!is_free(entry.first) || (config.train.follows_evaluations && is_of_evaluations(entry.first)))
      fingerprint.insert(std::move(entry));
  }
  // As a fact of the data it counts where both have it: checkpoints from before it have none.
  if (config.data) {
    const std::string order = order_of(config.data->pipeline.augmentations);
    if (!order.empty()) fingerprint["data (order of augmentations)"] = order;
  }
  return fingerprint;
}

void add_data(Fingerprint& fingerprint, const OpenedData& data) {
  const auto fact = [&](const char* name, std::string value) {
    fingerprint[fmt::format("data ({})", name)] = std::move(value);
  };
  const auto samples = [](const auto& source) {
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < source.batches_per_epoch(); ++i) sum += source.size_of(i);
    return fmt::format("{}", sum);
  };
  fact("training samples of an epoch", samples(*data.train));
  fact("validation samples", samples(*data.validation));
  if (data.test != nullptr) fact("test samples", samples(*data.test));
  fact("image", to_string(data.train->image_shape()));
  if (!data.decoder.empty()) fact("decoder", data.decoder);
  fact("classes", fmt::format("{}", data.train->classes()));
}

std::string to_text(const Fingerprint& fingerprint) {
  std::string text;
  for (const auto& [name, value] : fingerprint) text += fmt::format("{}: {}\n", name, value);
  return text;
}

std::vector<std::string> differences(const Fingerprint& was, const Fingerprint& is) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : was) {
    const auto now = is.find(name);
    if (now == is.end() && !is_fact_of_data(name))
      lines.push_back(fmt::format("{}: was {}, is gone", name, value));
    else if (now != is.end() && now->second != value)
      lines.push_back(fmt::format("{}: was {}, is {}", name, value, now->second));
  }
  for (const auto& [name, value] : is)
    if (!was.contains(name) && !is_fact_of_data(name)) lines.push_back(fmt::format("{}: is new ({})", name, value));
  return lines;
}

}  // namespace bantam::run
