// Activation: backward keeps bits, or x or y, whichever its formula reads.
#include "bantam/engine/autograd/gradient_target.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/ops/masked_activation.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/elementwise/piecewise.h"

namespace bantam::ops {
namespace {

void forward(const Context& context, ActivationFunction f, const Tensor& x, const Tensor& y) {
  BANTAM_KERNEL(context.exec, activation_forward, f.kind, f.slope, x.elements(), x.dtype(), x.data(), y.data());
}

}  // namespace

Tensor activation(const Context& context, Tensor x, Activation kind, float slope) {
  const ActivationFunction f{kind, slope};
  if (kind == Activation::none) return x;
  context.check_device("activation", {&x});
  if (kernels::is_piecewise(kind)) return masked_activation(context, std::move(x), Tensor(), f);
  const bool recorded = records(context, {&x});
  const bool keeps_input = recorded && kernels::activation_grad_reads_input(kind);
  const ValueRef x_ref = x;
  SavedTensor saved = keeps_input ? SavedTensor(x) : SavedTensor();
  Tensor y = reuse_or_allocate(context, x);  // not x where it is saved
  forward(context, f, x, y);
  if (!recorded) return y;
  if (!keeps_input) saved = SavedTensor(y);
  context.tape->record(context, y, [=](const Context& ctx, Tensor dy, GradientStore& store) mutable {
    Tensor dx = reuse_or_allocate(ctx, dy);
    const Tensor read = saved.unpack(ctx);
    BANTAM_KERNEL(ctx.exec, activation_grad, kind, slope, dy.elements(), dy.dtype(), read.data(), dy.data(), dx.data());
    store.add(ctx, x_ref, std::move(dx));
  });
  if (keeps_input)
    attach_recipe(context, y, {&saved}, [=](const Context& ctx) {
      const Tensor input = saved.get(ctx), again = ctx.allocate(input.shape(), input.dtype());
      forward(ctx, f, input, again);
      return again;
    });
  return y;
}

}  // namespace bantam::ops
