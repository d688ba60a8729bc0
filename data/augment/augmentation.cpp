// The table of augmentations, and the random numbers that host forms get.
#include "bantam/data/augment/augmentation.h"

#include "bantam/data/augment/built_in.h"

namespace bantam {

Registry<AugmentationFactory>& augmentations() {
  static Registry<AugmentationFactory> table("augmentation", {{"affine", read_affine},
                                                              {"center_crop", read_center_crop},
                                                              {"color_jitter", read_color_jitter},
                                                              {"grayscale", read_grayscale},
                                                              {"rand_augment", read_rand_augment},
                                                              {"random_crop", read_random_crop},
                                                              {"random_erasing", read_random_erasing},
                                                              {"random_flip", read_random_flip},
                                                              {"random_resized_crop", read_random_resized_crop},
                                                              {"random_vertical_flip", read_random_vertical_flip},
                                                              {"resize", read_resize},
                                                              {"rotation", read_rotation},
                                                              {"trivial_augment", read_trivial_augment}});
  return table;
}

void apply_on_host(const Augmentations& augmentations, std::uint64_t seed, AugmentedSample& sample) {
  for (const auto& augmentation : augmentations) {
    if (augmentation->has_device_form()) continue;
    // Names, epochs and samples are mixed one after the other: no sum or product of two of them meets another.
    const std::uint64_t what =
        mix64(mix64(hash_name(augmentation->name()) ^ mix64(static_cast<std::uint64_t>(sample.epoch))) ^
              static_cast<std::uint64_t>(sample.index));
    PhiloxSequence random(philox_key(seed, RandomPurpose::augmentation, what));
    augmentation->apply(sample, random);
  }
}

}  // namespace bantam
