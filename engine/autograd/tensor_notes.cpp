// Notes are shared by copies of a tensor, and copied when they change.
#include "bantam/engine/autograd/tensor_notes.h"

#include <utility>

namespace bantam {
namespace {

/// A tensor's notes to be changed: its own copy of them.
std::shared_ptr<TensorNotes> changed(const Tensor& tensor) {
  return tensor.notes() != nullptr ? std::make_shared<TensorNotes>(*tensor.notes()) : std::make_shared<TensorNotes>();
}

}  // namespace

std::shared_ptr<Recipe> recipe_of(const Tensor& tensor) {
  return tensor.notes() != nullptr ? tensor.notes()->recipe : nullptr;
}

const DeferredNorm* deferred_norm_of(const Tensor& tensor) {
  return tensor.notes() != nullptr ? tensor.notes()->deferred_norm.get() : nullptr;
}

const BatchStatistics* statistics_of(const Tensor& tensor) {
  return tensor.notes() != nullptr ? tensor.notes()->statistics.get() : nullptr;
}

const BiasedActivation* biased_activation_of(const Tensor& tensor) {
  return tensor.notes() != nullptr ? tensor.notes()->biased_activation.get() : nullptr;
}

const SumActivation* sum_activation_of(const Tensor& tensor) {
  return tensor.notes() != nullptr ? tensor.notes()->sum_activation.get() : nullptr;
}

void set_recipe(Tensor& tensor, std::shared_ptr<Recipe> recipe) {
  if (recipe == nullptr && recipe_of(tensor) == nullptr) return;
  const std::shared_ptr<TensorNotes> notes = changed(tensor);
  notes->recipe = std::move(recipe);
  tensor.set_notes(notes);
}

void set_deferred_norm(Tensor& tensor, DeferredNorm norm) {
  const std::shared_ptr<TensorNotes> notes = changed(tensor);
  notes->deferred_norm = std::make_shared<const DeferredNorm>(std::move(norm));
  tensor.set_notes(notes);
}

void set_statistics(Tensor& tensor, BatchStatistics statistics) {
  const std::shared_ptr<TensorNotes> notes = changed(tensor);
  notes->statistics = std::make_shared<const BatchStatistics>(std::move(statistics));
  tensor.set_notes(notes);
}

void set_biased_activation(Tensor& tensor, BiasedActivation activation) {
  const std::shared_ptr<TensorNotes> notes = changed(tensor);
  notes->biased_activation = std::make_shared<const BiasedActivation>(std::move(activation));
  tensor.set_notes(notes);
}

void set_sum_activation(Tensor& tensor, SumActivation activation) {
  const std::shared_ptr<TensorNotes> notes = changed(tensor);
  notes->sum_activation = std::make_shared<const SumActivation>(std::move(activation));
  tensor.set_notes(notes);
}

}  // namespace bantam
