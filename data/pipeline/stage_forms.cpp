// One pass forwards for sizes, one backwards for what the kernel can do.
#include "bantam/data/pipeline/stage_forms.h"

#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

bool is_known(ImageSize size) { return size.height > 0 && size.width > 0; }

/// Before each stage, and after the last one, as far as region forms say it.
std::vector<ImageSize> sizes_between(const Augmentations& stages, ImageSize size) {
  std::vector<ImageSize> sizes = {size};
  for (const auto& stage : stages)
    sizes.push_back(stage->has_region_form() ? stage->size_after(sizes.back()) : sizes.back());
  return sizes;
}

/// Where the stages begin that the kernel applies.
std::size_t first_placed(const Augmentations& stages, const std::vector<ImageSize>& sizes, bool moves_targets) {
  std::size_t first = stages.size();
  while (first > 0) {
    const Augmentation& stage = *stages[first - 1];
    const bool with_targets = moves_targets && (stage.has_region_form() || stage.has_host_form());
    const bool by_worker = with_targets || (stage.has_region_form() && !is_known(sizes[first - 1]));
    if (!stage.has_device_form() || by_worker) break;
    --first;
  }
  for (std::size_t i = 0; i < first; ++i)
    if (stages[i]->has_device_form() && !stages[i]->has_region_form() && !stages[i]->has_host_form())
      throw ConfigError(fmt::format("{} changes stored pixels, so it must come before {}", stages[first - 1]->name(),
                                    stages[i]->name()));
  return first;
}

/// How many stages belong to reading: the most after which images have one size.
std::size_t read_stages(const Augmentations& stages, const std::vector<ImageSize>& sizes, std::size_t most) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < most && stages[i]->has_region_form() && !stages[i]->has_chance(); ++i)
    if (is_known(sizes[i + 1])) count = i + 1;
  return count;
}

Shape shape_of(ImageSize size, std::int64_t channels) {
  return is_known(size) ? Shape{size.height, size.width, channels} : Shape{0, 0, channels};
}

/// Samples without rows and columns of pixels: nothing has a window.
StageForms forms_of_vectors(const Augmentations& stages, const Shape& values) {
  for (const auto& stage : stages)
    if (stage->has_region_form() || stage->has_device_form())
      throw ShapeError(
          fmt::format("{} needs images of height and width, but a sample is {}", stage->name(), to_string(values)));
  return {.reading = {}, .worker = stages, .placed = {}, .stored = values, .gathered = values};
}

}  // namespace

StageForms stage_forms(const Augmentations& stages, const DatasetFacts& facts) {
  const Shape& images = facts.image_shape;
  if (images.rank() != 3) return forms_of_vectors(stages, images);
  const bool moves_targets =
      std::ranges::any_of(facts.targets, [&](const SampleField& t) { return is_pixel_target(t, images); });
  const std::vector<ImageSize> sizes = sizes_between(stages, {images[0], images[1]});
  const std::size_t placed = first_placed(stages, sizes, moves_targets);
  const std::size_t reading = read_stages(stages, sizes, placed);
  const auto at = [&](std::size_t i) { return stages.begin() + static_cast<std::ptrdiff_t>(i); };
  return {.reading = {at(0), at(reading)},
          .worker = {at(reading), at(placed)},
          .placed = {at(placed), stages.end()},
          .stored = reading == 0 ? images : shape_of(sizes[reading], images[2]),
          .gathered = shape_of(sizes[placed], images[2])};
}

bool is_pixel_target(const SampleField& target, const Shape& image_shape) {
  if (target.encoding == FieldEncoding::mask) return true;
  return image_shape.rank() == 3 && target.shape.rank() >= 2 && target.shape[0] == image_shape[0] &&
         target.shape[1] == image_shape[1];
}

DatasetFacts with_image_shape(DatasetFacts facts, const Shape& images) {
  for (SampleField& target : facts.targets) {
    if (!is_pixel_target(target, facts.image_shape)) continue;
    std::vector<std::int64_t> extents(target.shape.extents().begin(), target.shape.extents().end());
    std::copy_n(images.extents().begin(), 2, extents.begin());
    target.shape = Shape(extents);
    if (images[0] > 0) target.encoding = FieldEncoding::values;
  }
  facts.image_shape = images;
  return facts;
}

}  // namespace bantam
