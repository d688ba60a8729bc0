// Internal: the factories of the built-in augmentations.
#pragma once

#include "bantam/data/augment/augmentation.h"

namespace bantam {

std::shared_ptr<const Augmentation> read_random_crop(ConfigMap& options);
std::shared_ptr<const Augmentation> read_random_flip(ConfigMap& options);

}  // namespace bantam
