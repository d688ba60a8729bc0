// Sizes by the stages' own rules.
#include "bantam/data/survey/pipeline_steps.h"

#include <algorithm>
#include <memory>
#include <string>

#include "bantam/data/augment/built_in.h"

namespace bantam {
namespace {

ImageSize size_after(const Augmentation& stage, ImageSize size) {
  if (stage.has_region_form()) return stage.size_after(size);
  if (!stage.has_device_form() || size.height == 0) return size;
  kernels::ImageBatchShape shape{.in_h = size.height, .in_w = size.width, .out_h = size.height, .out_w = size.width};
  stage.window(shape);
  return {shape.out_h, shape.out_w};
}

/// Pixels of the shorter side that every image has after the stage; 0: they differ.
std::int64_t shorter_side_after(const Augmentation& stage) {
  if (!stage.has_region_form()) return 0;
  const auto shorter = [&](ImageSize size) {
    const ImageSize after = stage.size_after(size);
    return std::min(after.height, after.width);
  };
  // Two large images of different sizes and shapes: what they have in common, all have.
  const std::int64_t of_one = shorter({30000, 40000});
  return of_one == shorter({60000, 50000}) ? of_one : 0;
}

bool normalizes(const NormalizeOptions& options) {
  const NormalizeOptions none;
  return options.scale != none.scale || options.mean != none.mean || options.std != none.std;
}

}  // namespace

std::vector<PipelineStep> pipeline_steps(const PipelineOptions& options, const DatasetFacts& facts) {
  std::vector<PipelineStep> steps;
  ImageSize size;
  if (facts.image_shape.rank() == 3) size = {facts.image_shape[0], facts.image_shape[1]};
  const auto add = [&](const std::shared_ptr<const Augmentation>& stage) {
    size = size_after(*stage, size);
    steps.push_back({.name = std::string(stage->name()),
                     .size = size,
                     .shorter_side = size == ImageSize{} ? shorter_side_after(*stage) : 0,
                     .chance = stage->has_chance()});
  };
  const auto add_those = [&](bool of_finished_values) {
    for (const auto& stage : options.augmentations)
      if (changes_finished_values(*stage) == of_finished_values) add(stage);
  };
  add_those(false);
  if (normalizes(options.normalize)) steps.push_back({.name = "normalize", .size = size});
  add_those(true);
  if (options.mix.one_hot) steps.push_back({.name = "one_hot", .size = size});
  if (options.mix.mixup) steps.push_back({.name = "mixup", .size = size, .chance = true});
  if (options.mix.cutmix) steps.push_back({.name = "cutmix", .size = size, .chance = true});
  return steps;
}

}  // namespace bantam
