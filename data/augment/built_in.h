// The built-in augmentations.
#pragma once

#include "bantam/data/augment/augmentation.h"
#include "bantam/kernels/input/image_batch.h"

namespace bantam {

/// A window of the padded image at a random place; validation images are cropped at the centre.
struct RandomCropOptions {
  std::int64_t height = 0, width = 0;  ///< 0: as the images
  std::int64_t padding = 0;            ///< added on each side first
  kernels::PadMode mode = kernels::PadMode::zero;
  std::int32_t mask_fill = 255;  ///< class number of masks' padding where `mode` is zero
};

/// A window of random area and shape, resampled; torchvision's RandomResizedCrop.
struct RandomResizedCropOptions {
  ImageSize size;                                          ///< the size of the result
  double least_area = 0.08, most_area = 1.0;               ///< the window's area as a share of the image's
  double least_ratio = 3.0 / 4.0, most_ratio = 4.0 / 3.0;  ///< width over height
};

/// Device form; region form too where there is no padding.
std::shared_ptr<const Augmentation> random_crop(const RandomCropOptions& options);
/// Left and right, a share of the images. Device and region form.
std::shared_ptr<const Augmentation> random_flip(double share = 0.5);
/// Left and right, by a coin that seed and sample decide: in even epochs as it says, in odd ones the other way round.
/// Device and region form.
std::shared_ptr<const Augmentation> alternating_flip();
/// Device form: finished values, normalised ones as a rule, become (x + u·brightness)·(1 + v·contrast), u and v uniform
/// in [-1, 1), one of each an image; whatever its place among the stages of this form, it acts last.
std::shared_ptr<const Augmentation> jitter(float brightness, float contrast);
/// Whether it is `jitter`: it moves no pixels, and changes values after all others.
bool changes_finished_values(const Augmentation& stage);
/// Region form. Width 0: `height` is that of the shorter side.
std::shared_ptr<const Augmentation> resize(ImageSize size);
/// Region form.
std::shared_ptr<const Augmentation> center_crop(ImageSize size);
/// Region form.
std::shared_ptr<const Augmentation> random_resized_crop(const RandomResizedCropOptions& options);

// Readers of stages, by their names in a configuration.
std::shared_ptr<const Augmentation> read_affine(ConfigMap& options);
std::shared_ptr<const Augmentation> read_center_crop(ConfigMap& options);
std::shared_ptr<const Augmentation> read_color_jitter(ConfigMap& options);
std::shared_ptr<const Augmentation> read_grayscale(ConfigMap& options);
std::shared_ptr<const Augmentation> read_jitter(ConfigMap& options);
std::shared_ptr<const Augmentation> read_rand_augment(ConfigMap& options);
std::shared_ptr<const Augmentation> read_random_crop(ConfigMap& options);
/// A padded crop to the size that images have anyway, RandomCrop(32, padding=4) of 32 x 32 images, is one without a
/// size, which workers can apply before other stages; all else is returned as it is.
std::shared_ptr<const Augmentation> without_equal_size(std::shared_ptr<const Augmentation> stage, ImageSize images);
std::shared_ptr<const Augmentation> read_random_erasing(ConfigMap& options);
std::shared_ptr<const Augmentation> read_random_flip(ConfigMap& options);
std::shared_ptr<const Augmentation> read_random_resized_crop(ConfigMap& options);
std::shared_ptr<const Augmentation> read_random_vertical_flip(ConfigMap& options);
std::shared_ptr<const Augmentation> read_resize(ConfigMap& options);
std::shared_ptr<const Augmentation> read_rotation(ConfigMap& options);
std::shared_ptr<const Augmentation> read_trivial_augment(ConfigMap& options);

}  // namespace bantam
