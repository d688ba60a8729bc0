// The built-in augmentations.
#pragma once

#include "bantam/data/augment/augmentation.h"
#include "bantam/kernels/contracts/input/image_batch.h"

namespace bantam {

/// A window of the padded image at a random place; validation images are cropped at the centre.
struct RandomCropOptions {
  std::int64_t height = 0, width = 0;  ///< 0: as the images
  std::int64_t padding = 0;            ///< added on each side first
  kernels::PadMode mode = kernels::PadMode::zero;
};

/// Device form.
std::shared_ptr<const Augmentation> random_crop(const RandomCropOptions& options);
/// Left and right, in half of the images. Device form.
std::shared_ptr<const Augmentation> random_flip();

std::shared_ptr<const Augmentation> read_random_crop(ConfigMap& options);
std::shared_ptr<const Augmentation> read_random_flip(ConfigMap& options);

}  // namespace bantam
