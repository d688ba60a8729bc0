// Making tensors again from recipes, shared while anybody holds them.
#include "bantam/engine/saved_tensor.h"

#include <utility>

namespace bantam {

Tensor Recipe::make(const Context& context) {
  if (auto storage = living_.lock()) return {std::move(storage), shape_, dtype_};
  Tensor tensor = make_(context.at(path_));
  living_ = tensor.storage();
  shape_ = tensor.shape();
  dtype_ = tensor.dtype();
  return tensor;
}

SavedTensor::SavedTensor(const Tensor& tensor)
    : value_(tensor.recipe() != nullptr ? Tensor() : tensor),
      recipe_(tensor.recipe()),
      ref_(tensor),
      shape_(tensor.shape()),
      dtype_(tensor.dtype()) {}

Tensor SavedTensor::get(const Context& context) const { return recipe_ != nullptr ? recipe_->make(context) : value_; }

Tensor SavedTensor::take(const Context& context) {
  Tensor tensor = get(context);
  value_ = Tensor();
  recipe_.reset();
  return tensor;
}

void attach_recipe(const Context& context, Tensor& y, std::initializer_list<const SavedTensor*> inputs,
                   Recipe::Make make, int passes) {
  if (!context.derive) return;
  for (const SavedTensor* input : inputs) passes += input->passes();
  if (passes > Recipe::kMostPasses) return;
  y.set_recipe(std::make_shared<Recipe>(context.path, passes, std::move(make)));
}

}  // namespace bantam
