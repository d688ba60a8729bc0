// Activation: backward keeps x or y, whichever its formula reads.
#include "bantam/engine/ops/activation.h"

#include "bantam/engine/ops/gradient_target.h"
#include "bantam/engine/tape.h"

namespace bantam::ops {

Tensor activation(const Context& context, Tensor x, kernels::Activation kind, float slope) {
  if (kind == kernels::Activation::none) return x;
  context.check_device("activation", {&x});
  const bool recorded = records(context, {&x});
  const bool keeps_input = recorded && kernels::activation_grad_reads_input(kind);
  Tensor y = keeps_input ? context.allocate(x.shape(), x.dtype()) : reuse_or_allocate(context, x);
  BANTAM_KERNEL(context.exec, activation_forward, kind, slope, x.elements(), x.dtype(), x.data(), y.data());
  if (!recorded) return y;
  const ValueRef x_ref = x;
  const Tensor saved = keeps_input ? x : y;
  context.tape->record(context, y, [=](const Context& ctx, Tensor dy, GradientStore& store) {
    Tensor dx = reuse_or_allocate(ctx, dy);
    BANTAM_KERNEL(ctx.exec, activation_grad, kind, slope, dy.elements(), dy.dtype(), saved.data(), dy.data(),
                  dx.data());
    store.add(ctx, x_ref, std::move(dx));
  });
  return y;
}

}  // namespace bantam::ops
