// dense with ReLU → dense, at the end of a graph: with the loss one op (kernels/contracts/head/classifier_head.h).
#pragma once

#include "bantam/engine/graph/fusion.h"

namespace bantam::fusion {

extern const FusionPattern kClassifierHead;

}  // namespace bantam::fusion
