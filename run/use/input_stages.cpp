// Stages of evaluation as text and JSON.
#include "bantam/run/use/input_stages.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/error.h"
#include "bantam/run/use/image_stages.h"

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
  if (stages.decodes) texts.push_back(decode_text(stages));
  for (const PipelineStep& step : stages.steps) texts.push_back(text_of(step, stages.normalize));
  return fmt::format("{}", fmt::join(texts, ", "));
}

nlohmann::ordered_json to_json(const InputStages& stages) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  if (stages.decodes) json.push_back(decode_json(stages));
  for (const PipelineStep& step : stages.steps) json.push_back(json_of(step, stages.normalize));
  return json;
}

}  // namespace bantam::run
