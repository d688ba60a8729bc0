// NodePlan: all that is decided about one operation of a training step before anything runs.
#pragma once

#include <cstdint>

#include "bantam/engine/program/recompute_options.h"

namespace bantam {

struct FusionPattern;
class NormSource;

/// Index of a node in its graph; 0 is the input.
using NodeId = int;

/// The ways in which a layer of the engine works together with its neighbours (Layer::traits). The defaults: in none.
struct NodeTraits {
  /// In training, the op that reads its output may apply the batch norm that it ends with (deferred norm).
  bool may_defer_norm = false;
  /// It applies such a norm as it reads its inputs.
  bool applies_deferred_norms = false;
  /// It need not write an output that nobody reads (Context::output_unused): a checkpoint segment that ends with it is
  /// recomputed for less.
  bool skips_unused_output = false;
  /// Only the op that writes the layer's output runs under the node's plan; the layer's other ops run under
  /// Context::inner().
  bool separates_inner_ops = false;
};

/// One operation: a layer, or a fusion that runs a chain of them. `lower` (graph.h) decides it; the model, the planner,
/// the cost model and `bantam explain` read it. Ops see it as Context::node.
struct NodePlan {
  NodeId first = 0, last = 0;             ///< layers it stands for: `first` alone, or a chain
  const FusionPattern* fusion = nullptr;  ///< what runs in their place; null: the layer itself
  int segment = -1;                       ///< the StepProgram's segment that it belongs to
  /// The segment is a checkpoint segment: backward recomputes it.
  bool recomputed = false;
  /// Which of the tensors that it writes backward rebuilds.
  Derive derive = Derive::none;
  /// The batch norm that it ends with is applied by the only reader of its output, as that reads.
  bool defers_norm = false;
  /// It contributes the last part of the gradient of the sum that it reads (SumActivation in tensor_notes.h), a
  /// convolution that multiplies the gradient by relu' and sums it as it writes.
  /// Or a max pooling, the only reader of a convolution with bias and relu.
  bool masks_gradient = false;
  /// The gradient of its output, which is relu of a biased convolution, comes multiplied by relu', with its sums: its
  /// only reader masks it, so that nothing is kept for that.
  bool gradient_is_masked = false;
  /// It ends a checkpoint segment, so that nobody reads its output when the segment is recomputed; only its backward
  /// runs then.
  bool ends_segment = false;
  /// The batch norm after it, whose batch statistics it computes as it writes that norm's input; 0: none.
  NodeId statistics_for = 0;
  /// That norm, bound to its parameters: set by the model (null elsewhere).
  const NormSource* norm_after = nullptr;
};

}  // namespace bantam
