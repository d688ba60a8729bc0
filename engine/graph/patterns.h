// The fusion patterns there are, a table a file.
#pragma once

#include <span>

#include "bantam/engine/graph/fusion.h"

namespace bantam::fusion {

/// Chains that begin with a batch norm (norm_chains.cpp).
extern const std::span<const FusionPattern> kNormChains;
/// Separable convolutions with what follows them (separable_block.cpp).
extern const std::span<const FusionPattern> kSeparableBlocks;
/// Convolutions with the max pooling after them (conv_pool.cpp).
extern const std::span<const FusionPattern> kConvPools;
/// Ends of classifiers, which are one op with the loss (classifier_head.cpp).
extern const std::span<const FusionPattern> kClassifierHeads;

/// For inference alone: convolutions and dense layers with bias, activation and the sum after them
/// (inference_chains.cpp).
extern const std::span<const FusionPattern> kInferenceChains;

/// For training alone: convolutions before which nothing trains, with frozen parameters, as in inference
/// (inference_chains.cpp).
extern const std::span<const FusionPattern> kFrozenLayers;

/// No chain of its own: the batch norm whose batch statistics the convolution `node` computes as it writes its output
/// (NodePlan::statistics_for); 0 where there is none. On CUDA, of convolutions without bias and activation whose only
/// reader is a batch norm, where the kernel can (kernels/conv/conv2d_statistics.h). Each of the two may run
/// alone, within another fusion, deferred or recomputed, with the same bits.
NodeId norm_after_conv(const Graph& graph, NodeId node, const FusionTarget& target);

}  // namespace bantam::fusion
