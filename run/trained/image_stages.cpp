// The pipeline of a configuration, read for files of any size, or else for images of the model's size.
#include "bantam/run/trained/image_stages.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/data/delivery/data_config.h"
#include "bantam/data/formats/class_names.h"

namespace bantam::run {
namespace {

/// Images of `size`, or files of any, with labels as training samples have them.
DatasetFacts facts_of(const Shape& input, ImageSize size, std::int64_t classes, const ImageValues& values) {
  return values.applied_to(
      {.size = 1, .image_shape = {size.height, size.width, input[2]}, .class_names = numbered_classes(classes)});
}

PipelineOptions stages_for(ConfigMap& data, const DatasetFacts& facts) {
  PipelineOptions options = read_pipeline(data.node("pipeline"), facts);
  if (const auto evaluation = data.find("evaluation"))
    options.evaluation = read_evaluation_stages(evaluation->as_map().node("pipeline"), facts);
  return options;
}

/// Reduces a pipeline to its stages in evaluation, of which only the images count: no mixing, no cache.
PipelineOptions for_images(PipelineOptions options) {
  options = evaluation_pipeline(std::move(options));
  options.mix = {};
  options.cache = CacheKind::off;
  options.prefetch = {};
  options.prefetch.depth.reset();
  options.prefetch.workers.reset();
  return options;
}

/// The batch's images where the stages suit such samples; else nothing.
std::optional<PipelineOptions> fitting(ConfigMap& data, const DatasetFacts& facts, const Shape& input) {
  try {
    PipelineOptions options = for_images(stages_for(data, facts));
    const kernels::ImageBatchShape shape = batch_shape(options, facts);
    if (finished_image(shape, facts.image_shape) == input) return options;
  } catch (const ConfigError&) {
  } catch (const ShapeError&) {
  }
  return std::nullopt;
}

/// Returns the training images' size, where the data are there and have one; else `otherwise`. Refuses images that are
/// no pixels: what the stages expect is not what a file has.
ImageSize stored_size(const ConfigNode& section, ImageSize otherwise) {
  DatasetFacts facts;
  try {
    facts = train_facts(read_data_config(section));
  } catch (const Error&) {
    return otherwise;
  }
  if (facts.has_encoded_images()) return otherwise;
  if (facts.image_dtype != DType::uint8)
    section.fail_at_key(
        fmt::format("the training images are {} numbers, not pixels of 0 to 255 as files have them: what their values "
                    "mean is not known",
                    to_string(facts.image_dtype)));
  if (facts.image_shape.rank() != 3) return otherwise;
  return {facts.image_shape[0], facts.image_shape[1]};
}

}  // namespace

ImageStages image_stages(const RunConfig& config, std::int64_t classes) {
  const Shape& input = config.model.graph.input_shape();
  if (input.rank() != 3)
    config.model.input.fail(
        fmt::format("the model reads {} a sample, not images (height, width, channels)", to_string(input)));
  const auto section = config.document.map().find("data");
  if (!section)
    config.document.root().fail_at_key("missing key 'data': data.pipeline says how images become the model's input");
  ConfigMap data = section->as_map();
  ImageStages stages{.channels = input[2], .values = read_image_values(data)};
  const DatasetFacts files = facts_of(input, {}, classes, stages.values);
  if (auto found = fitting(data, files, input)) {
    stages.pipeline = std::move(*found);
    return stages;
  }
  const ImageSize size = stored_size(*section, {input[0], input[1]});
  const DatasetFacts sized = facts_of(input, size, classes, stages.values);
  if (auto found = fitting(data, sized, input)) {
    stages.pipeline = std::move(*found);
    stages.size = size;
    return stages;
  }
  const PipelineOptions options = for_images(stages_for(data, sized));  // throws what is wrong with them
  const Shape made = finished_image(batch_shape(options, sized), sized.image_shape);
  data.node("pipeline")
      .fail(fmt::format("images of any size become {} by these stages, but the model reads {}; a resize stage "
                        "(data.evaluation.pipeline) brings them to its size",
                        to_string(made), to_string(input)));
}

PipelineOptions sample_stages(const RunConfig& config, const DatasetFacts& facts) {
  const auto section = config.document.map().find("data");
  if (!section)
    config.document.root().fail_at_key("missing key 'data': data.pipeline says how samples become the model's input");
  ConfigMap data = section->as_map();
  PipelineOptions options = for_images(stages_for(data, facts));
  const Shape made = finished_image(batch_shape(options, facts), facts.image_shape);
  const Shape& input = config.model.graph.input_shape();
  if (made != input)
    data.node("pipeline")
        .fail(fmt::format("samples of {} become {} by these stages, but the model reads {}",
                          to_string(facts.image_shape), to_string(made), to_string(input)));
  return options;
}

}  // namespace bantam::run
