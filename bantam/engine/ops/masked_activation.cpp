// Masked activation: backward keeps one bit an element, whether f' is 1 there.
#include "bantam/engine/ops/masked_activation.h"

#include "bantam/engine/ops/gradient_target.h"
#include "bantam/engine/saved_tensor.h"
#include "bantam/kernels/masked_activation.h"

namespace bantam::ops {
namespace {

void forward(const Context& context, kernels::ActivationFunction f, const Tensor& a, const Tensor& b, const Tensor& y,
             const Tensor& mask) {
  BANTAM_KERNEL(context.exec, masked_activation_forward, f, y.elements(), y.dtype(), a.data(),
                b.defined() ? b.data() : nullptr, y.data(), mask.defined() ? mask.as<std::uint8_t>() : nullptr);
}

/// What makes the output again from both operands.
Recipe::Make make_again(kernels::ActivationFunction f, const SavedTensor& a, const SavedTensor& b) {
  return [=](const Context& ctx) {
    const Tensor left = a.get(ctx), right = b.defined() ? b.get(ctx) : Tensor();
    const Tensor y = ctx.allocate(left.shape(), left.dtype());
    forward(ctx, f, left, right, y, Tensor());
    return y;
  };
}

}  // namespace

Tensor masked_activation(const Context& context, Tensor a, Tensor b, kernels::ActivationFunction f) {
  const bool recorded = records(context, {&a, &b});
  const ValueRef a_ref = a, b_ref = b.defined() ? ValueRef(b) : ValueRef();
  // Saved before a decision to work in place: what the recipe holds is then not overwritten.
  const bool derived = recorded && context.derive && kept_anyway(a) && (!b.defined() || kept_anyway(b));
  const SavedTensor a_saved = derived ? SavedTensor(a) : SavedTensor();
  const SavedTensor b_saved = derived && b.defined() ? SavedTensor(b) : SavedTensor();
  Tensor y = b.defined() && !a.sole_owner() && b.sole_owner() ? b.view(b.shape()) : reuse_or_allocate(context, a);
  Tensor mask;
  if (recorded)
    mask = context.allocate({static_cast<std::int64_t>(kernels::activation_mask_bytes(y.elements()))}, DType::uint8);
  forward(context, f, a, b, y, mask);
  if (!recorded) return y;
  context.tape->record(context, y, [=](const Context& ctx, Tensor dy, GradientStore& store) {
    Tensor dx = reuse_or_allocate(ctx, dy);
    BANTAM_KERNEL(ctx.exec, masked_activation_grad, f, dy.elements(), dy.dtype(), mask.as<std::uint8_t>(), dy.data(),
                  dx.data());
    dy = Tensor();
    store.add(ctx, a_ref, dx);
    store.add(ctx, b_ref, std::move(dx));
  });
  if (derived) attach_recipe(context, y, {&a_saved, &b_saved}, make_again(f, a_saved, b_saved));
  return y;
}

}  // namespace bantam::ops
