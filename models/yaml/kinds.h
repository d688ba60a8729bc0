// Internal: the built-in kinds of layers by family; layer_kinds() (network.h) has them all.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bantam/base/config/registry.h"
#include "bantam/engine/layers/layer.h"

namespace bantam::models {

using Kinds = std::vector<std::pair<std::string, Reader<LayerPtr>>>;

/// Layers that change height and width: transposed convolution, upsampling, padding, cropping.
Kinds image_kinds();
/// Normalisations beside batch_norm.
Kinds norm_kinds();
/// Layers that join or weigh inputs: concat, multiply, squeeze-excite; and those that drop parts of them.
Kinds join_kinds();

}  // namespace bantam::models
