// Composites: groups of nodes that compute what one op does, as exporters write ops that their opset lacks.
#pragma once

#include <vector>

#include "bantam/models/onnx/import/constants.h"
#include "bantam/models/onnx/onnx_model.h"

namespace bantam::onnx {

/// The nodes with each group's last one replaced by the op: Gelu (of Erf or Tanh), Swish, HardSwish, HardSigmoid, Mish,
/// Softplus (of Where), Clip, LayerNormalization without scale, and GlobalResponseNormalization (of x, scale and shift;
/// attributes axes, axis of the channels and epsilon), which is no op of ONNX. The others of a group stay, for whoever
/// reads them as well.
std::vector<Node> with_composites(std::vector<Node> nodes, const Constants& constants);

}  // namespace bantam::onnx
