// The pattern of a depthwise convolution between two batch norms.
#pragma once

#include "bantam/engine/graph/fusion.h"

namespace bantam::fusion {

/// batch_norm, depthwise_conv2d without bias and activation, batch_norm, both norms with relu or relu6; shapes as
/// kernels::norm_depthwise_takes says.
extern const FusionPattern kNormDepthwise;

}  // namespace bantam::fusion
