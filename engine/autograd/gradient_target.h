// Where an op's backward writes the gradient of a weight: the parameter's place in the arena, or a new tensor. And the
// memory that an op may work in.
#pragma once

#include <cstdint>
#include <utility>

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tape.h"

namespace bantam::ops {

/// Where an op writes the gradient of a weight or a vector in float32: the parameter's place in the arena, a new
/// tensor, or nowhere (`data` is null: nobody wants it).
class FloatGradient {
 public:
  /// Whether `data` is null or scratch memory where nobody wants the gradient: some kernels cannot skip writing it.
  enum class Unwanted : std::uint8_t { skipped, written };

  FloatGradient(const Context& context, const Tensor& tensor, GradientStore& store,
                Unwanted unwanted = Unwanted::skipped) {
    if (!tensor.defined()) return;
    const bool wanted = wants_gradient(tensor);
    if (wanted && tensor.parameter() != nullptr) {
      const ParameterGradient target = store.parameter(*tensor.parameter());
      data = target.data;
      accumulate = target.accumulate;
      return;
    }
    if (!wanted && unwanted == Unwanted::skipped) return;
    fresh_ = context.allocate(tensor.shape(), DType::float32);
    data = fresh_.as<float>();
  }
  /// Adds a new tensor, once it is written, to the store, in the type of `tensor`.
  void add_to(const Context& context, const Tensor& tensor, GradientStore& store) {
    if (!fresh_.defined() || !wants_gradient(tensor)) return;
    if (tensor.dtype() != DType::float32) fresh_ = cast(context, fresh_, tensor.dtype());
    store.add(context, tensor, std::move(fresh_));
  }

  /// Whether it is a parameter's place in the arena.
  bool in_arena() const { return data != nullptr && !fresh_.defined(); }

  float* data = nullptr;
  bool accumulate = false;

 private:
  Tensor fresh_;
};

/// `x` itself where nobody else holds its memory (then the op works in place), else a new tensor like it.
inline Tensor reuse_or_allocate(const Context& context, const Tensor& x) {
  return x.sole_owner() ? x.view(x.shape()) : context.allocate(x.shape(), x.dtype());
}

}  // namespace bantam::ops
