// TensorNotes: metadata that a tensor carries from the op that wrote it to the ops that read it.
#pragma once

#include <memory>

#include "bantam/engine/autograd/norm.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tensor.h"

namespace bantam {

/// Batch statistics, computed by the op that wrote the tensor, for the batch norm that reads it
/// (NodePlan::statistics_for): with that norm's epsilon, and its running statistics have moved.
struct BatchStatistics {
  /// (C) float32; undefined in a segment that is recomputed, whose norm has those of the first pass.
  Tensor mean, inv_std;
  /// The op's backward computes the norm's input gradient as it reads (Gradient::NormInput).
  bool computes_norm_gradient = false;
};

/// Deferred normalisation: the tensor's memory is a batch norm's input, its value the norm's output. Only sums read
/// such tensors, and pointwise convolutions after a fusion that defers its norm; `lower` (graph.h) ensures that no
/// other op reads one.
struct DeferredNorm {
  SavedTensor input;  ///< what backward keeps of the memory; undefined where nothing is recorded
  Norm norm;          ///< with the batch's statistics
};

/// The tensor is f(x + b) of an x that wants no gradient, b being a bias that does: an op that reads the tensor may add
/// its part of b's gradient itself, in the place of a gradient of the tensor.
struct BiasedActivation {
  SavedTensor x;
  Tensor b;
  ActivationFunction f;
};

/// The tensor is relu of a sum (of two tensors, or of one and a bias), and the sum's backward accepts a gradient that
/// relu' has been multiplied with, and its sums (Gradient::Operands::sums), from the op that contributes the last part
/// of it (NodePlan::masks_gradient).
struct SumActivation {
  Tensor mask;  ///< bits of relu'; undefined where none was kept: those of values above 0
};

/// Copies of a tensor have its notes, views do not.
struct TensorNotes {
  std::shared_ptr<Recipe> recipe;  ///< how backward rebuilds the tensor instead of keeping it; null: it has to be kept
  std::shared_ptr<const DeferredNorm> deferred_norm;          ///< null: memory and value are the same
  std::shared_ptr<const BatchStatistics> statistics;          ///< null: not computed
  std::shared_ptr<const SumActivation> sum_activation;        ///< null: it is none
  std::shared_ptr<const BiasedActivation> biased_activation;  ///< null: it is none, or x wants a gradient, too
};

/// The tensor's notes by kind; null where it has none.
std::shared_ptr<Recipe> recipe_of(const Tensor& tensor);
const DeferredNorm* deferred_norm_of(const Tensor& tensor);
const BatchStatistics* statistics_of(const Tensor& tensor);
const BiasedActivation* biased_activation_of(const Tensor& tensor);
const SumActivation* sum_activation_of(const Tensor& tensor);
/// Add to the tensor's notes (null: remove). Copies that exist keep theirs.
void set_recipe(Tensor& tensor, std::shared_ptr<Recipe> recipe);
void set_deferred_norm(Tensor& tensor, DeferredNorm norm);
void set_statistics(Tensor& tensor, BatchStatistics statistics);
void set_biased_activation(Tensor& tensor, BiasedActivation activation);
void set_sum_activation(Tensor& tensor, SumActivation activation);

}  // namespace bantam
