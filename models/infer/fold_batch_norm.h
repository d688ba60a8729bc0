// A graph for inference: batch norms folded into the convolutions and matrix products before them, layers of training
// alone left out.
#pragma once

#include "bantam/engine/graph/graph.h"
#include "bantam/engine/train/safetensors.h"

namespace bantam {

struct InferenceGraph {
  Graph graph;              ///< computes what the original computes in evaluation, up to rounding
  SafetensorsFile weights;  ///< of `graph`, float32, all parameters and buffers
  int folded = 0;           ///< batch norms that are gone
};

/// `weights` has all parameters and buffers of `graph`, and no other tensors. Folded are batch norms of a convolution
/// (grouped, depthwise and transposed ones, too) or a dense layer that nothing else reads and that has no activation
/// before the norm; in double precision. The norm's activation becomes the layer's. Dropout and its like disappear.
/// Throws DataError naming a tensor that is missing, or that `graph` does not have.
InferenceGraph fold_for_inference(const Graph& graph, const SafetensorsFile& weights);

}  // namespace bantam
