// Which keys are hyperparameters, and their types.
#include "bantam/run/log/hparams.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

namespace bantam::run {
namespace {

constexpr auto kWanted =
    std::to_array<std::string_view>({"seed", "precision", "recompute", "model.name", "model.zoo", "data.format",
                                     "data.limit", "data.pipeline.", "data.sampling", "train."});
constexpr auto kUnwanted = std::to_array<std::string_view>(
    {"data.pipeline.cache", "data.pipeline.prefetch", "train.callbacks", "train.log_every", "train.mode"});

// HParamsPluginData
constexpr std::uint32_t kExperiment = 2, kStart = 3, kEnd = 4;
// google.protobuf.Value
constexpr std::uint32_t kNumberOfValue = 2, kTextOfValue = 3, kTruthOfValue = 4;

std::optional<double> number_of(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool is_truth(const std::string& text) { return text == "true" || text == "false"; }

ProtoWriter value_of(const std::string& text) {
  ProtoWriter value;
  if (is_truth(text))
    value.integer(kTruthOfValue, text == "true" ? 1 : 0);
  else if (const auto number = number_of(text))
    value.number(kNumberOfValue, *number);
  else
    value.bytes(kTextOfValue, text);
  return value;
}

/// DataType of the plugin.
std::int64_t type_of(const std::string& text) {
  constexpr std::int64_t kString = 1, kBool = 2, kFloat64 = 3;
  return is_truth(text) ? kBool : number_of(text) ? kFloat64 : kString;
}

/// "data.pipeline.2.batch.size" → "data.pipeline.batch.size": a stage goes by its name, and one without options is
/// true.
std::pair<std::string, std::string> without_stage_number(const std::string& path, const std::string& text) {
  constexpr std::string_view kStages = "data.pipeline.";
  if (!path.starts_with(kStages)) return {path, text};
  const std::size_t end = path.find('.', kStages.size());
  if (end == std::string::npos) return {std::string(kStages) + text, "true"};
  return {std::string(kStages) + path.substr(end + 1), text};
}

}  // namespace

ConfigValues hyperparameters(const ConfigValues& values) {
  ConfigValues wanted;
  for (const auto& [path, text] : values) {
    auto entry = without_stage_number(path, text);
    const auto begins = [&](std::string_view key) { return entry.first.starts_with(key); };
    if (std::ranges::any_of(kWanted, begins) && std::ranges::none_of(kUnwanted, begins))
      wanted.push_back(std::move(entry));
  }
  return wanted;
}

ProtoWriter hparams_start(const std::string& run, const ConfigValues& hyperparameters, double seconds_since_1970) {
  ProtoWriter start, data;
  for (const auto& [key, text] : hyperparameters) {
    ProtoWriter entry;
    entry.bytes(1, key);
    entry.message(2, value_of(text));
    start.message(1, entry);
  }
  start.bytes(4, run);  // group_name
  start.number(5, seconds_since_1970);
  data.message(kStart, start);
  return data;
}

ProtoWriter hparams_experiment(const ConfigValues& hyperparameters, const std::vector<MetricTag>& metric_tags) {
  ProtoWriter experiment, data;
  for (const auto& [key, text] : hyperparameters) {
    ProtoWriter info;
    info.bytes(1, key);
    info.integer(4, type_of(text));
    experiment.message(4, info);
  }
  for (const MetricTag& metric : metric_tags) {
    ProtoWriter name, info;
    name.bytes(1, metric.folder);
    name.bytes(2, metric.tag);
    info.message(1, name);
    experiment.message(5, info);
  }
  data.message(kExperiment, experiment);
  return data;
}

ProtoWriter hparams_end(bool success, double seconds_since_1970) {
  constexpr std::int64_t kSuccess = 1, kFailure = 2;
  ProtoWriter end, data;
  end.integer(1, success ? kSuccess : kFailure);
  end.number(2, seconds_since_1970);
  data.message(kEnd, end);
  return data;
}

}  // namespace bantam::run
