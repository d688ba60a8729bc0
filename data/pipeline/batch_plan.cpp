// From pipeline options to the kernel's scale, shift and sizes, and to each sample's place, crop and flip.
#include <cmath>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/philox.h"
#include "bantam/data/pipeline/pipeline.h"

namespace bantam {
namespace {

constexpr std::int64_t kMostChannels = 8;    // of kernels::ImageBatchShape
constexpr std::int64_t kMostExtent = 16384;  // corners are 16-bit numbers, padding included

void check_list(const char* name, const std::vector<double>& values, std::int64_t channels) {
  if (values.size() == 1 || static_cast<std::int64_t>(values.size()) == channels) return;
  throw ShapeError(fmt::format("normalize: {} has {} values, but images have {} channels (give one value or {})", name,
                               values.size(), channels, channels));
}

void set_affine(const NormalizeOptions& options, kernels::ImageBatchShape& shape) {
  check_list("mean", options.mean, shape.channels);
  check_list("std", options.std, shape.channels);
  for (std::int64_t c = 0; c < shape.channels; ++c) {
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

void set_window(const RandomCropOptions& crop, kernels::ImageBatchShape& shape) {
  shape.out_h = crop.height > 0 ? crop.height : shape.in_h;
  shape.out_w = crop.width > 0 ? crop.width : shape.in_w;
  shape.pad_mode = crop.mode;
  const std::int64_t padded_h = shape.in_h + 2 * crop.padding, padded_w = shape.in_w + 2 * crop.padding;
  if (crop.padding < 0 || shape.out_h > padded_h || shape.out_w > padded_w)
    throw ShapeError(
        fmt::format("random_crop: a window of {}x{} does not fit an image of {}x{} padded by {} on each side",
                    shape.out_h, shape.out_w, shape.in_h, shape.in_w, crop.padding));
  if (padded_h > kMostExtent || padded_w > kMostExtent)
    throw ShapeError(fmt::format("random_crop: a padded image has at most {} rows and columns", kMostExtent));
}

/// A number below `bound` from 32 random bits, by multiply and shift.
std::int64_t below(std::uint32_t bits, std::uint32_t bound) {
  return static_cast<std::int64_t>((std::uint64_t{bits} * bound) >> 32);
}

}  // namespace

kernels::ImageBatchShape batch_shape(const PipelineOptions& options, const Shape& image_shape) {
  if (options.batch_size < 1)
    throw ConfigError(fmt::format("the batch size must be at least 1, got {}", options.batch_size));
  kernels::ImageBatchShape shape;
  shape.batch = options.batch_size;
  shape.in_h = shape.out_h = image_shape[0];
  shape.in_w = shape.out_w = image_shape[1];
  shape.channels = image_shape[2];
  if (shape.channels > kMostChannels)
    throw ShapeError(fmt::format("images of {} channels: at most {} are supported", shape.channels, kMostChannels));
  set_affine(options.normalize, shape);
  if (options.random_crop) set_window(*options.random_crop, shape);
  return shape;
}

PipelineOptions evaluation_pipeline(PipelineOptions options) {
  options.shuffle.reset();
  options.random_flip = false;
  options.drop_last = false;
  if (options.random_crop) options.random_crop->random_places = false;
  return options;
}

BatchPlanner::BatchPlanner(const PipelineOptions& options, const kernels::ImageBatchShape& shape, std::uint64_t seed)
    : seed_(seed),
      random_crop_(options.random_crop && options.random_crop->random_places),
      random_flip_(options.random_flip),
      low_top_((shape.in_h - shape.out_h) / 2),
      low_left_((shape.in_w - shape.out_w) / 2),
      tops_(1),
      lefts_(1) {
  if (!random_crop_) return;
  const std::int64_t padding = options.random_crop->padding;
  low_top_ = low_left_ = -padding;
  tops_ = static_cast<std::uint32_t>(shape.in_h + 2 * padding - shape.out_h + 1);
  lefts_ = static_cast<std::uint32_t>(shape.in_w + 2 * padding - shape.out_w + 1);
}

void BatchPlanner::plan(std::span<const std::int32_t> order, std::int64_t epoch, std::int64_t first_place,
                        std::span<kernels::ImagePlacement> out) const {
  const PhiloxKey key = philox_key(seed_, RandomPurpose::augmentation, static_cast<std::uint64_t>(epoch));
  const bool random = random_crop_ || random_flip_;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto place = static_cast<std::uint64_t>(first_place) + i;
    PhiloxWords words{};
    if (random)
      words = philox(key, {{static_cast<std::uint32_t>(place), static_cast<std::uint32_t>(place >> 32), 0, 0}});
    kernels::ImagePlacement& p = out[i];
    p.image = order[i];
    p.top = static_cast<std::int16_t>(low_top_ + below(words.v[0], tops_));
    p.left = static_cast<std::int16_t>(low_left_ + below(words.v[1], lefts_));
    p.flip = random_flip_ ? static_cast<std::int32_t>(words.v[2] >> 31) : 0;
  }
}

}  // namespace bantam
