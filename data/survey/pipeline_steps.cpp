// Sizes by the stages' own rules.
#include "bantam/data/survey/pipeline_steps.h"

namespace bantam {
namespace {

ImageSize size_after(const Augmentation& stage, ImageSize size) {
  if (stage.has_region_form()) return stage.size_after(size);
  if (!stage.has_device_form() || size.height == 0) return size;
  kernels::ImageBatchShape shape{.in_h = size.height, .in_w = size.width, .out_h = size.height, .out_w = size.width};
  stage.window(shape);
  return {shape.out_h, shape.out_w};
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
  for (const auto& stage : options.augmentations) {
    size = size_after(*stage, size);
    steps.push_back({std::string(stage->name()), size, stage->has_chance()});
  }
  if (normalizes(options.normalize)) steps.push_back({"normalize", size, false});
  if (options.mix.one_hot) steps.push_back({"one_hot", size, false});
  if (options.mix.mixup) steps.push_back({"mixup", size, true});
  if (options.mix.cutmix) steps.push_back({"cutmix", size, true});
  return steps;
}

}  // namespace bantam
