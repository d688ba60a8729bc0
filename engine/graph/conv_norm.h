// Convolutions that give the statistics of what they write, for the batch norm behind them.
#pragma once

#include "bantam/engine/graph/fusion.h"

namespace bantam::fusion {

/// The batch norm that takes its input's statistics from the convolution `node`; 0 where there is none. On CUDA, of
/// convolutions without bias and activation whose only reader is a batch norm, and which kernels give the statistics of
/// (kernels/contracts/conv/conv2d_statistics.h). No stretch of its own: each of the two runs alone, within another
/// fusion, deferred or again, and agrees on the bits.
int norm_behind_conv(const Graph& graph, int node, const FusionTarget& target);

}  // namespace bantam::fusion
