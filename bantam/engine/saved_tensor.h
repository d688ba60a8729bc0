// SavedTensor: what backward keeps of a tensor: the tensor itself, or a recipe to make it again.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>

#include "bantam/engine/context.h"
#include "bantam/engine/tape.h"
#include "bantam/engine/tensor.h"

namespace bantam {

/// How to make a tensor again, bit for bit, from tensors that backward keeps anyway (or that have recipes themselves).
/// Not thread-safe; one step on one stream.
class Recipe {
 public:
  using Make = std::function<Tensor(const Context&)>;
  /// The longest chain: a recipe of more kernels than this is not worth its memory. A residual block's output behind
  /// batch norm takes 2 more than its shortcut's input (3 with a convolution in the shortcut), so that at most two
  /// block outputs in a row are made from each other.
  static constexpr int kMostPasses = 5;

  /// `passes`: kernels that `make` runs, those of its inputs' recipes included. `path` tags what it allocates.
  Recipe(const char* path, int passes, Make make) : path_(path), passes_(passes), make_(std::move(make)) {}
  int passes() const { return passes_; }
  /// The tensor, or the copy that somebody still holds. Not to be written to. Throws OutOfMemory.
  Tensor make(const Context& context);

 private:
  const char* path_;
  int passes_;
  Make make_;
  std::weak_ptr<Storage> living_;
  Shape shape_;
  DType dtype_ = DType::float32;
};

/// Keeps a tensor's memory, or, where it has a recipe, only that; and its identity, shape and type in any case.
class SavedTensor {
 public:
  SavedTensor() = default;
  SavedTensor(const Tensor& tensor);  // NOLINT: a saved tensor is made wherever a tensor is kept

  /// The tensor, which may have to be made. It has no identity on a tape, and others may read it: never write to it.
  /// Throws OutOfMemory.
  Tensor get(const Context& context) const;
  /// The same, and keeps nothing but identity, shape and type: for the last use.
  Tensor take(const Context& context);

  bool defined() const { return value_.defined() || recipe_ != nullptr; }
  /// Kernels that `get` runs.
  int passes() const { return recipe_ != nullptr ? recipe_->passes() : 0; }
  const ValueRef& ref() const { return ref_; }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }

 private:
  Tensor value_;
  std::shared_ptr<Recipe> recipe_;
  ValueRef ref_;
  Shape shape_;
  DType dtype_ = DType::float32;
};

/// Whether backward keeps this tensor whatever an op that reads it does: it has a recipe, or others hold its memory.
inline bool kept_anyway(const Tensor& tensor) { return tensor.recipe() != nullptr || !tensor.sole_owner(); }

/// Gives `y`, which an op has just recorded, the recipe `make` of one kernel (`passes`: 0 for a view) over `inputs`.
/// Does nothing where the chain would be too long, or where the context asks for no recipes (Context::derive).
void attach_recipe(const Context& context, Tensor& y, std::initializer_list<const SavedTensor*> inputs,
                   Recipe::Make make, int passes = 1);

}  // namespace bantam
