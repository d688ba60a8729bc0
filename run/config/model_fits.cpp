// Whether model, loss and metrics suit the data.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "bantam/base/counted.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/models/yaml/graph_building.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run {
namespace {

bool loss_reads(const RunConfig& config, std::string_view name) {
  const std::vector<TensorFacts> reads = config.train.loss.loss->targets(config.model.graph.output_shape());
  return std::ranges::find(reads, name, &TensorFacts::name) != reads.end();
}

}  // namespace

bool has_one_class(const RunConfig& config) {
  const bool softmax = config.train.loss.loss->output_kind() == OutputKind::softmax;
  if (softmax || loss_reads(config, kLabels) || !loss_reads(config, kTargets)) return false;
  if (config.train.one_class) return *config.train.one_class;
  if (!config.data || !config.data->pipeline.mix.any()) return false;
  const std::vector<SampleField> stored = train_facts(*config.data).targets;
  return std::ranges::find(stored, kTargets, &SampleField::name) == stored.end();
}

std::string_view accuracy_name(const RunConfig& config) {
  if (has_one_class(config)) return "accuracy";
  const Loss& loss = *config.train.loss.loss;
  if (!loss.counts_correct()) return "";
  return loss.output_kind() == OutputKind::sigmoid ? "binary_accuracy" : "accuracy";
}

namespace {

/// Lists what batches have beside images: the fields of the configuration's data, or labels.
std::vector<SampleField> target_fields(const RunConfig& config) {
  return config.data ? batch_facts(*config.data).targets : DatasetFacts{}.targets;
}

/// Who reads a target: "the loss mse reads".
std::string readers_of(const RunConfig& config, std::string_view name) {
  const Loss& loss = *config.train.loss.loss;
  for (const TensorFacts& facts : loss.targets(config.model.graph.output_shape()))
    if (facts.name == name) return fmt::format("the loss {} reads", loss.kind());
  return "a metric reads";
}

/// Pixels of no class count nothing in the loss either: their number is no class's.
void require_ignored(const RunConfig& config) {
  if (!config.data) return;
  const std::optional<std::int32_t> ignored = train_facts(*config.data).ignored_label;
  const Loss& loss = *config.train.loss.loss;
  if (!ignored || !loss_reads(config, kLabels)) return;
  if (loss.ignored_label() != ignored)
    config.model.output.fail_at_key(
        fmt::format("data.ignore: pixels of {} have no class, so the loss must leave them out: "
                    "train.loss: {{softmax_cross_entropy: {{ignore_index: {}}}}}",
                    *ignored, *ignored));
}

/// Throws where a stage fills masks' pixels with a number that is neither a class nor left out by the loss: it makes
/// the loss NaN.
void require_fills(const RunConfig& config, std::int64_t classes) {
  if (!config.data) return;
  const auto is_mask = [](const SampleField& field) { return field.shape.rank() >= 2 && field.dtype == DType::int32; };
  if (std::ranges::none_of(train_facts(*config.data).targets, is_mask)) return;
  const std::optional<std::int32_t> ignored = config.train.loss.loss->ignored_label();
  for (const auto& stage : config.data->pipeline.augmentations)
    if (const auto fill = stage->mask_fill(); fill && *fill >= classes && fill != ignored)
      config.model.output.fail_at_key(fmt::format(
          "data.pipeline: {} fills masks with {}, which is none of the {} classes, and the loss does not leave it out: "
          "write {}: {{mask_fill: 0}} for class 0, or train.loss: {{softmax_cross_entropy: {{ignore_index: {}}}}}",
          stage->name(), *fill, classes, stage->name(), *fill));
}

/// Fails at the model's output where the data do not have what the loss or a metric reads.
void require_target(const RunConfig& config, const TensorFacts& reads, std::int64_t classes) {
  const auto fail = [&](const std::string& message) { config.model.output.fail_at_key(message); };
  const std::vector<SampleField> fields = target_fields(config);
  const auto field = std::ranges::find(fields, reads.name, &SampleField::name);
  if (field == fields.end()) {
    std::vector<std::string> names = {std::string(kImages)};
    for (const SampleField& other : fields) names.push_back(other.name);
    const bool has_values = std::ranges::find(fields, kTargets, &SampleField::name) != fields.end();
    const std::string_view advice =
        reads.name == kLabels && has_values
            ? "; for targets that are values name a loss and metrics of values: binary_cross_entropy, "
              "{softmax_cross_entropy: {targets: values}} or mse, and {f1: {multi_label: true}}, say"
        : reads.name == kTargets ? "; for class numbers name a loss of classes, such as softmax_cross_entropy, "
                                   "or write one_hot before the batch stage"
                                 : "";
    fail(fmt::format("{} '{}', but the data have {}{}", readers_of(config, reads.name), reads.name,
                     join(names, ", ", " and "), advice));
  }
  if (reads.name == kLabels && field->shape.rank() == 0 && reads.shape.rank() > 0)
    fail(
        fmt::format("the data have a label an image, so that a model ends with one value a class, as that of dense: "
                    "{{units: classes}}; this ends with {}; put global_average_pool or flatten before the last layer",
                    to_string(config.model.graph.output_shape())));
  if (reads.classes > 0 && reads.classes != classes)
    fail(fmt::format("the model's output is {}, but the data have {}: {}", to_string(config.model.graph.output_shape()),
                     counted(classes, "class", "classes"),
                     config.document.map().map("model").has("zoo")
                         ? fmt::format("write model.classes: {}", classes)
                         : fmt::format("the last layer needs as many values, such as dense: {{units: {}}}", classes)));
  if (field->shape != reads.shape)
    fail(fmt::format("the model's output is {}, so that '{}' must be {} a sample, but the data's are {}",
                     to_string(config.model.graph.output_shape()), reads.name, to_string(reads.shape),
                     to_string(field->shape)));
  if (reads.dtype && field->dtype != *reads.dtype)
    fail(fmt::format("the loss or a metric reads '{}' of {}, but the data's are {}", reads.name,
                     to_string(*reads.dtype), to_string(field->dtype)));
}

/// A loss of labels would train mixed images on one of their two classes.
void require_soft_loss(const RunConfig& config) {
  if (!config.data || !config.data->pipeline.mix.any()) return;
  if (loss_reads(config, kLabels) && !loss_reads(config, kTargets))
    config.model.output.fail_at_key(
        "the pipeline has one_hot, mixup or cutmix, whose probabilities are in 'targets', but the loss reads 'labels': "
        "write `train.loss: {softmax_cross_entropy: {targets: values}}`");
}

}  // namespace

void require_model_fits(const RunConfig& config, const Shape& image, std::int64_t classes) {
  const Graph& graph = config.model.graph;
  if (graph.input_shape() != image) {
    const Shape& input = graph.input_shape();
    const bool channels_first = input.rank() == 3 && image.rank() == 3 && Shape{input[1], input[2], input[0]} == image;
    config.model.input.fail(
        fmt::format("the model expects {}, but the data's images are {} after the pipeline's stages{}",
                    to_string(input), to_string(image),
                    channels_first ? fmt::format(": input is [height, width, channels], write input: [{}, {}, {}]",
                                                 image[0], image[1], image[2])
                                   : models::channels_first_hint(input)));
  }
  require_soft_loss(config);
  require_ignored(config);
  require_fills(config, classes);
  for (const TensorFacts& target : targets_of(config.train.loss, graph.output_shape()))
    if (target.name != kImages) require_target(config, target, classes);
}

void require_one_size(const RunConfig& config) {
  const Shape trained = batch_facts(*config.data).image_shape, evaluated = evaluated_image(*config.data);
  if (evaluated == trained) return;
  ConfigMap data = config.document.map().map("data");
  const auto section = data.find("evaluation");
  const ConfigNode stages = section ? section->as_map().node("pipeline") : data.node("pipeline");
  const std::vector<ConfigNode> items = stages.items();
  (items.empty() ? stages : items.back())
      .fail(fmt::format("validation images are {} after this stage, but training's are {}, and `train` evaluates at "
                        "training's size;\n  evaluate at {} afterwards: bantam evaluate RUN "
                        "'data.evaluation.pipeline=[…]'",
                        to_string(evaluated), to_string(trained), to_string(evaluated)));
}

void require_model_fits(const RunConfig& config) {
  if (!config.data) return;
  require_one_size(config);
  const DatasetFacts facts = batch_facts(*config.data);
  require_model_fits(config, facts.image_shape, static_cast<std::int64_t>(facts.class_names.size()));
}

}  // namespace bantam::run
