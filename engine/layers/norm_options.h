// The options of any batch norm. Layer::options has none of a frozen one, so that no pattern of norms over the batch
// fits it.
#pragma once

#include "bantam/engine/layers/layers.h"

namespace bantam {

/// Of a batch norm, frozen or not; null for other layers.
const BatchNormOptions* batch_norm_options(const Layer& layer);

}  // namespace bantam
