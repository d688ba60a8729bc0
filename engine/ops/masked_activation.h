// The piecewise linear activations of one tensor or of a sum, for `activation` and `add`.
#pragma once

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/kernels/elementwise/activation.h"

namespace bantam::ops {

/// An operand of a sum as a recipe keeps it: what backward keeps of its memory, and the norm that is deferred to its
/// readers.
struct SavedOperand {
  SavedOperand() = default;
  explicit SavedOperand(const Tensor& tensor);
  Tensor get(const Context& context) const;

  SavedTensor memory;
  std::shared_ptr<const DeferredNorm> norm;  ///< null: none
};
/// An operand of a sum as kernels read it: with the norm that is deferred to its readers, where there is one.
kernels::NormOperand operand_of(const Tensor& tensor);

/// Memory for the mask of an activation of `elements` values, a bit each: which values its gradient passes.
Tensor allocate_mask(const Context& context, std::int64_t elements);

/// The forward kernel alone, into y, and into `mask` where that is defined; f is `none` or piecewise. Norms that
/// are deferred to the sum are applied as it reads its operands.
void run_masked_forward(const Context& context, ActivationFunction f, const Tensor& a, const Tensor& b, const Tensor& y,
                        const Tensor& mask);

/// y = f(a + b), or f(a) where b is undefined; f is piecewise (kernels::is_piecewise). Operands were checked.
Tensor masked_activation(const Context& context, Tensor a, Tensor b, ActivationFunction f);

}  // namespace bantam::ops
