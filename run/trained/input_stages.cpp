// Stages of evaluation as text and JSON.
#include "bantam/run/trained/input_stages.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/run/trained/image_stages.h"

namespace bantam::run {
namespace {

constexpr std::string_view kNormalize = "normalize";

std::string text_of(const PipelineStep& step, const NormalizeOptions& normalize) {
  if (step.name == kNormalize)
    return fmt::format("{} (scale {}, mean {}, std {})", step.name, normalize.scale, fmt::join(normalize.mean, ", "),
                       fmt::join(normalize.std, ", "));
  if (step.shorter_side > 0) return fmt::format("{} (shorter side {})", step.name, step.shorter_side);
  return fmt::format("{} ({} x {})", step.name, step.size.width, step.size.height);
}

nlohmann::ordered_json json_of(const PipelineStep& step, const NormalizeOptions& normalize) {
  nlohmann::ordered_json json = {{"stage", step.name}};
  if (step.name == kNormalize)
    json.update({{"scale", normalize.scale}, {"mean", normalize.mean}, {"std", normalize.std}});
  else if (step.shorter_side > 0)
    json["shorter_side"] = step.shorter_side;
  else
    json.update({{"height", step.size.height}, {"width", step.size.width}});
  return json;
}

std::string decode_text(const InputStages& stages) {
  std::string text = fmt::format("decode ({}, upright", stages.channels == 1   ? "grey"
                                                        : stages.channels == 3 ? "RGB"
                                                                               : "RGBA");
  if (stages.values.background) text += fmt::format(", over {}", fmt::join(*stages.values.background, " "));
  return text + (stages.values.as_stored ? ", values as stored)" : ")");
}

nlohmann::ordered_json decode_json(const InputStages& stages) {
  nlohmann::ordered_json json = {{"stage", "decode"}, {"channels", stages.channels}, {"exif", true}};
  if (stages.values.background) json["background"] = *stages.values.background;
  if (stages.values.as_stored) json["range"] = "stored";
  return json;
}

}  // namespace

InputStages input_stages(const RunConfig& config, std::int64_t classes) {
  if (RowInput row = row_input(config); !row.features.empty()) {
    InputStages stages;
    stages.row = std::move(row);
    return stages;
  }
  ImageStages read;
  try {
    read = image_stages(config, classes);
  } catch (const ConfigError&) {
    return {};
  }
  const DatasetFacts facts{.size = 1, .image_shape = {read.size.height, read.size.width, read.channels}};
  InputStages stages{.decodes = true,
                     .channels = read.channels,
                     .values = read.values,
                     .steps = pipeline_steps(read.pipeline, facts),
                     .normalize = read.pipeline.normalize};
  if (read.size != ImageSize{}) stages.steps.insert(stages.steps.begin(), {.name = "resize", .size = read.size});
  return stages;
}

std::string to_text(const InputStages& stages) {
  std::vector<std::string> texts;
  if (const RowInput& row = stages.row; !row.features.empty()) {
    texts.push_back(fmt::format("columns ({})", shown(join(row.features, ", ", " and "), 200)));
    if (!row.fill.empty()) texts.push_back("means of training in place of missing numbers");
    if (!row.mean.empty())
      texts.push_back("standardize (x - mean) / std; input_stages in the file's metadata has the numbers");
  }
  if (stages.decodes) texts.push_back(decode_text(stages));
  for (const PipelineStep& step : stages.steps) texts.push_back(text_of(step, stages.normalize));
  return fmt::format("{}", fmt::join(texts, ", "));
}

nlohmann::ordered_json to_json(const InputStages& stages) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  if (const RowInput& row = stages.row; !row.features.empty()) {
    nlohmann::ordered_json columns = {{"stage", "columns"}, {"names", row.features}};
    if (!row.fill.empty()) columns["missing"] = row.fill;
    json.push_back(std::move(columns));
    if (!row.mean.empty()) {
      std::vector<double> deviation = row.deviation;
      for (double& value : deviation) value = value > 0 ? value : 1;  // of a column of one value
      json.push_back({{"stage", "standardize"}, {"mean", row.mean}, {"std", deviation}});
    }
  }
  if (stages.decodes) json.push_back(decode_json(stages));
  for (const PipelineStep& step : stages.steps) json.push_back(json_of(step, stages.normalize));
  return json;
}

}  // namespace bantam::run
