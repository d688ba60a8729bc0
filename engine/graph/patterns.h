// The fusion patterns there are, each in a file of its own.
#pragma once

#include "bantam/engine/graph/fusion.h"

namespace bantam::fusion {

/// batch_norm, depthwise_conv2d without bias and activation, batch_norm, both norms with relu or relu6
/// (ops/norm_depthwise.h).
extern const FusionPattern kNormDepthwise;
/// separable_conv2d 3x3 with ReLU or no activation, then max_pool 2x2 (ops/separable_block.h).
extern const FusionPattern kPooledSeparableBlock;
/// The same without pooling.
extern const FusionPattern kSeparableBlock;
/// dense with ReLU, dense, at the end of a graph: with the loss one op (ops/classifier_head.h).
extern const FusionPattern kClassifierHead;

/// No chain of its own: the batch norm whose batch statistics the convolution `node` computes as it writes its output
/// (NodePlan::statistics_for); 0 where there is none. On CUDA, of convolutions without bias and activation whose only
/// reader is a batch norm, where the kernel can (kernels/contracts/conv/conv2d_statistics.h). Each of the two may run
/// alone, within another fusion, deferred or recomputed, with the same bits.
NodeId norm_after_conv(const Graph& graph, NodeId node, const FusionTarget& target);

}  // namespace bantam::fusion
