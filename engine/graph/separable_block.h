// Patterns of separable blocks: a separable convolution with ReLU or no activation, with or without max pooling behind.
#pragma once

#include "bantam/engine/graph/fusion.h"

namespace bantam::fusion {

/// [separable_conv2d 3x3, max_pool 2x2]: one op (engine/ops/separable_block.h).
extern const FusionPattern kPooledSeparableBlock;
/// [separable_conv2d 3x3].
extern const FusionPattern kSeparableBlock;

}  // namespace bantam::fusion
