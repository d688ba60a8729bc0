// Rebuilding tensors from recipes, shared while a copy is alive.
#include "bantam/engine/autograd/saved_tensor.h"

#include <utility>

#include "bantam/engine/autograd/tensor_notes.h"

namespace bantam {

Tensor Recipe::make(const Context& context) {
  if (auto storage = living_.lock()) return {std::move(storage), shape_, dtype_};
  const kernels::KernelPhaseScope phase(context.exec.log, kernels::KernelPhase::rebuild);
  Tensor tensor = make_(context.at(path_));
  living_ = tensor.storage();
  shape_ = tensor.shape();
  dtype_ = tensor.dtype();
  return tensor;
}

SavedTensor::SavedTensor(const Tensor& tensor)
    : value_(recipe_of(tensor) != nullptr ? Tensor() : tensor),
      recipe_(recipe_of(tensor)),
      ref_(tensor),
      shape_(tensor.shape()),
      dtype_(tensor.dtype()) {}

Tensor SavedTensor::get(const Context& context) const { return recipe_ != nullptr ? recipe_->make(context) : value_; }

Tensor SavedTensor::unpack(const Context& context) {
  Tensor tensor = get(context);
  value_ = Tensor();
  recipe_.reset();
  return tensor;
}

bool kept_anyway(const Tensor& tensor) {
  if (const DeferredNorm* norm = deferred_norm_of(tensor)) return norm->input.defined();  // its own backward keeps it
  return recipe_of(tensor) != nullptr || !tensor.sole_owner();
}

void attach_recipe(const Context& context, Tensor& y, std::initializer_list<const SavedTensor*> inputs,
                   Recipe::Make make, bool is_view) {
  int traffic = is_view ? 0 : 1, operands = 0;
  for (const SavedTensor* input : inputs) {
    if (!input->defined()) continue;
    traffic += input->traffic() + (is_view ? 0 : 1);
    ++operands;
  }
  if (!derives(context, operands) || traffic > Recipe::kMostTraffic) return;
  set_recipe(y, std::make_shared<Recipe>(context.path, traffic, std::move(make)));
}

}  // namespace bantam
