// SavedTensor: what backward keeps of a tensor: the tensor itself, or a recipe that rebuilds it.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/engine/program/node_plan.h"

namespace bantam {

/// How to rebuild a tensor, bit for bit, from tensors that backward keeps anyway (or that have recipes themselves).
/// Not thread-safe; one step on one stream.
class Recipe {
 public:
  using Make = std::function<Tensor(const Context&)>;
  /// The longest chain: a recipe of more traffic than this is not worth its memory. A residual block's output moves 3
  /// tensors (the branch's and the shortcut's are read, itself written), so that no block output is rebuilt from
  /// another rebuilt one: two in a row would save 9 % more of resnet50's derived bytes for 33 % more traffic.
  static constexpr int kMostTraffic = 5;

  /// `traffic`: tensors that `make` reads and writes, its inputs' recipes included. `path` tags what it allocates.
  Recipe(const char* path, int traffic, Make make) : path_(path), traffic_(traffic), make_(std::move(make)) {}
  int traffic() const { return traffic_; }
  /// The tensor, or a copy of it that is still alive. Not to be written to. Throws OutOfMemory.
  Tensor make(const Context& context);

 private:
  const char* path_;
  int traffic_;
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

  /// The tensor, rebuilt where only a recipe was kept. It has no identity on a tape, and others may read it: never
  /// write to it. Throws OutOfMemory.
  Tensor get(const Context& context) const;
  /// The same for the last use: keeps only identity, shape and type.
  Tensor unpack(const Context& context);

  bool defined() const { return value_.defined() || recipe_ != nullptr; }
  /// Tensors that `get` reads and writes to rebuild it.
  int traffic() const { return recipe_ != nullptr ? recipe_->traffic() : 0; }
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
bool kept_anyway(const Tensor& tensor);

/// Whether the operation's plan asks for recipes of ops of so many operands (NodePlan::derive).
inline bool derives(const Context& context, int operands) {
  const Derive derive = context.plan().derive;
  return operands > 1 ? derive == Derive::cheap : derive != Derive::none;
}

/// Attaches to `y`, which an op has just recorded, the recipe `make` over `inputs`: one kernel, which reads them and
/// writes y, or a view of one (`is_view`). Does nothing where the chain would be too long, or where the context asks
/// for none.
void attach_recipe(const Context& context, Tensor& y, std::initializer_list<const SavedTensor*> inputs,
                   Recipe::Make make, bool is_view = false);

}  // namespace bantam
