// The table of augmentations, and the random numbers of host and region forms.
#include "bantam/data/augment/augmentation.h"

#include "bantam/data/augment/built_in.h"

namespace bantam {

Registry<AugmentationFactory>& augmentations() {
  static Registry<AugmentationFactory> table("augmentation", {{"affine", read_affine},
                                                              {"center_crop", read_center_crop},
                                                              {"color_jitter", read_color_jitter},
                                                              {"grayscale", read_grayscale},
                                                              {"jitter", read_jitter},
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

PhiloxSequence stage_random(const Augmentation& stage, std::uint64_t seed, std::int64_t epoch, std::int64_t index) {
  // Names, epochs and samples are mixed one after the other: no sum or product of two of them meets another.
  const std::uint64_t what = mix64(mix64(hash_name(stage.name()) ^ mix64(static_cast<std::uint64_t>(epoch))) ^
                                   static_cast<std::uint64_t>(index));
  return PhiloxSequence(philox_key(seed, RandomPurpose::augmentation, what));
}

}  // namespace bantam
