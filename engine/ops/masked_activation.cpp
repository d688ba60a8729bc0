// Masked activation: backward keeps one bit an element, whether f' is 1 there.
#include "bantam/engine/ops/masked_activation.h"

#include "bantam/engine/autograd/gradient_target.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/kernels/elementwise/masked_activation.h"
#include "bantam/kernels/norm/batch_norm_add.h"

namespace bantam::ops {
namespace {

/// A recipe that computes the output again from its operands a and, where there are two, b.
Recipe::Make rebuild(ActivationFunction f, const SavedOperand& a, const SavedOperand& b) {
  return [=](const Context& ctx) {
    const Tensor left = a.get(ctx), right = b.memory.defined() ? b.get(ctx) : Tensor();
    const Tensor y = ctx.allocate(left.shape(), left.dtype());
    run_masked_forward(ctx, f, left, right, y, Tensor());
    return y;
  };
}

struct Activated {
  Tensor y, mask;  // no mask where nobody wants one
};

/// At the end of a checkpoint segment the first pass saves the mask, and the recompute needs nothing else.
Activated forward(const Context& context, ActivationFunction f, const Tensor& a, const Tensor& b, bool recorded) {
  if (context.output_unused()) return {a.view(a.shape()), context.step.saved->next()};
  SavedStatistics* saved = context.plan().ends_segment ? context.step.saved : nullptr;
  Activated to{b.defined() && !a.sole_owner() && b.sole_owner() ? b.view(b.shape()) : reuse_or_allocate(context, a),
               {}};
  if (recorded || saved != nullptr) to.mask = allocate_mask(context, a.elements());
  run_masked_forward(context, f, a, b, to.y, to.mask);
  if (saved != nullptr) saved->save(to.mask);
  return to;
}

}  // namespace

SavedOperand::SavedOperand(const Tensor& tensor)
    : memory(deferred_norm_of(tensor) != nullptr ? deferred_norm_of(tensor)->input : SavedTensor(tensor)) {
  if (deferred_norm_of(tensor) != nullptr) norm = tensor.notes()->deferred_norm;
}

Tensor SavedOperand::get(const Context& context) const {
  Tensor tensor = memory.get(context);
  if (norm != nullptr) set_deferred_norm(tensor, *norm);
  return tensor;
}

kernels::NormOperand operand_of(const Tensor& tensor) {
  const DeferredNorm* deferred = deferred_norm_of(tensor);
  return deferred != nullptr ? deferred->norm.operand(tensor) : kernels::NormOperand{.x = tensor.data()};
}

Tensor allocate_mask(const Context& context, std::int64_t elements) {
  return context.allocate({static_cast<std::int64_t>(kernels::activation_mask_bytes(elements))}, DType::uint8);
}

void run_masked_forward(const Context& context, ActivationFunction f, const Tensor& a, const Tensor& b, const Tensor& y,
                        const Tensor& mask) {
  std::uint8_t* bits = mask.defined() ? mask.as<std::uint8_t>() : nullptr;
  if (b.defined() && (deferred_norm_of(a) != nullptr || deferred_norm_of(b) != nullptr)) {
    const std::int64_t channels = y.shape()[-1];
    const kernels::BatchNormShape shape{.rows = channels == 0 ? 0 : y.elements() / channels, .channels = channels};
    const bool swap = deferred_norm_of(a) == nullptr;  // the kernel's first operand is a norm's; sums commute
    BANTAM_KERNEL(context.exec, batch_norm_add, f, shape, y.dtype(), operand_of(swap ? b : a), operand_of(swap ? a : b),
                  y.data(), bits);
    return;
  }
  BANTAM_KERNEL(context.exec, masked_activation_forward, f, y.elements(), y.dtype(), a.data(),
                b.defined() ? b.data() : nullptr, y.data(), bits);
}

Tensor masked_activation(const Context& context, Tensor a, Tensor b, ActivationFunction f) {
  const bool recorded = records(context, {&a, &b});
  const ValueRef a_ref = a, b_ref = b.defined() ? ValueRef(b) : ValueRef();
  // Saved before a decision to work in place: what the recipe holds is then not overwritten.
  const bool derived =
      recorded && derives(context, b.defined() ? 2 : 1) && kept_anyway(a) && (!b.defined() || kept_anyway(b));
  const SavedOperand a_saved = derived ? SavedOperand(a) : SavedOperand();
  const SavedOperand b_saved = derived && b.defined() ? SavedOperand(b) : SavedOperand();
  auto [y, mask] = forward(context, f, a, b, recorded);
  if (!recorded) return y;
  context.tape->record_deferred(context, y, [=, mask = mask](const Context& ctx, Gradient dy, GradientStore& store) {
    Gradient dx = std::move(dy).masked(ctx, mask, f);
    if (!store.comes_next(a_ref) && !store.comes_next(b_ref)) dx = std::move(dx).tensor(ctx);
    store.add(ctx, a_ref, dx);
    store.add(ctx, b_ref, std::move(dx));
  });
  if (derived) attach_recipe(context, y, {&a_saved.memory, &b_saved.memory}, rebuild(f, a_saved, b_saved));
  return y;
}

}  // namespace bantam::ops
