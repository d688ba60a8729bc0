// From pipeline options to the kernel's scale, shift and sizes, and to each sample's window and mirroring.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/philox.h"
#include "bantam/data/pipeline/pipeline.h"
#include "bantam/kernels/input/image_batch.h"

namespace bantam {
namespace {

void check_list(const char* name, const std::vector<double>& values, std::int64_t channels) {
  if (values.size() == 1) return;
  if (channels > kernels::kMostScaledChannels)
    throw ShapeError(fmt::format("normalize: {} has {} values, but images of more than {} channels have one for all",
                                 name, values.size(), kernels::kMostScaledChannels));
  if (static_cast<std::int64_t>(values.size()) == channels) return;
  throw ShapeError(fmt::format("normalize: {} has {} values, but images have {} channels (give one value or {})", name,
                               values.size(), channels, channels));
}

void set_affine(const NormalizeOptions& options, kernels::ImageBatchShape& shape) {
  check_list("mean", options.mean, shape.channels);
  check_list("std", options.std, shape.channels);
  for (std::int64_t c = 0; c < std::min(shape.channels, kernels::kMostScaledChannels); ++c) {
    const auto channel = static_cast<std::size_t>(c);
    const double mean = options.mean[options.mean.size() == 1 ? 0 : channel];
    const double std = options.std[options.std.size() == 1 ? 0 : channel];
    shape.scale[c] = static_cast<float>(options.scale / std);
    shape.shift[c] = static_cast<float>(-mean / std);
    if (!std::isfinite(shape.scale[c]) || !std::isfinite(shape.shift[c]))
      throw ConfigError(
          fmt::format("normalize: channel {} is multiplied by {} and shifted by {}: float32 cannot hold it", c,
                      options.scale / std, -mean / std));
  }
}

}  // namespace

kernels::ImageBatchShape batch_shape(const PipelineOptions& options, const DatasetFacts& facts) {
  if (options.batch_size < 1)
    throw ConfigError(fmt::format("the batch size must be at least 1, got {}", options.batch_size));
  const StageForms forms = stage_forms(options.augmentations, facts);
  if (!forms.has_one_size())
    throw ShapeError(
        "the data's images have sizes of their own, and no stage of the pipeline makes them one: add `resize: {size: "
        "[H, W]}` or `random_resized_crop: {size: N}` before `batch`");
  kernels::ImageBatchShape shape;
  shape.batch = options.batch_size;
  const bool vectors = forms.gathered.rank() == 1;
  shape.in_h = shape.out_h = vectors ? 1 : forms.gathered[0];
  shape.in_w = shape.out_w = forms.gathered[vectors ? 0 : 1];
  shape.channels = vectors ? 1 : forms.gathered[2];
  shape.stored = facts.image_dtype;
  for (const auto& stage : options.augmentations) stage->check_images(forms.gathered, facts.image_dtype);
  set_affine(options.normalize, shape);
  for (const auto& stage : forms.placed) stage->window(shape);
  return shape;
}

kernels::ImageBatchShape batch_shape(const PipelineOptions& options, const Shape& image_shape, DType image_dtype) {
  DatasetFacts facts{.image_shape = image_shape, .image_dtype = image_dtype};
  facts.targets.clear();
  return batch_shape(options, facts);
}

Shape finished_image(const kernels::ImageBatchShape& shape, const Shape& stored) {
  return stored.rank() == 1 ? Shape{shape.out_w} : Shape{shape.out_h, shape.out_w, shape.channels};
}

PipelineOptions evaluation_pipeline(PipelineOptions options) {
  options.shuffle.reset();
  options.sampling = {};
  options.drop_last = false;
  options.mix = evaluation_mix(options.mix);
  const Augmentations training = std::exchange(options.augmentations, {});
  if (const auto own = std::exchange(options.evaluation, std::nullopt)) {
    options.augmentations = own->augmentations;
    options.normalize = own->normalize.value_or(options.normalize);
    return options;
  }
  for (const auto& augmentation : training)
    std::ranges::move(augmentation->for_evaluation(), std::back_inserter(options.augmentations));
  return options;
}

void BatchPlanner::plan(std::span<const std::int32_t> order, std::int64_t epoch, std::int64_t first_place,
                        std::span<kernels::ImagePlacement> out) const {
  const PhiloxKey key = philox_key(seed_, RandomPurpose::augmentation, static_cast<std::uint64_t>(epoch));
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto place = static_cast<std::uint64_t>(first_place) + i;
    out[i] = {.image = order[i]};
    if (placed_.empty()) continue;
    const PhiloxWords random =
        philox(key, {{static_cast<std::uint32_t>(place), static_cast<std::uint32_t>(place >> 32), 0, 0}});
    for (const auto& augmentation : placed_) augmentation->place_at({seed_, epoch, order[i]}, shape_, random, out[i]);
  }
}

}  // namespace bantam
