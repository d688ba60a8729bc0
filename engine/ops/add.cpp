// Add: both inputs receive dy, or dy times the derivative of the activation.
#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/engine/ops/masked_activation.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/elementwise/elementwise.h"
#include "bantam/kernels/elementwise/piecewise.h"

namespace bantam::ops {

Tensor add(const Context& context, Tensor a, Tensor b, ActivationFunction f) {
  context.check_device("add", {&a, &b});
  if (a.shape() != b.shape())
    throw ShapeError(fmt::format("add: {} and {} differ", to_string(a.shape()), to_string(b.shape())));
  if (a.dtype() != b.dtype())
    throw DTypeError(fmt::format("add: {} and {} differ", to_string(a.dtype()), to_string(b.dtype())));
  if (f.kind != Activation::none && !kernels::is_piecewise(f.kind)) {
    return activation(context, add(context.inner(), std::move(a), std::move(b)), f.kind, f.slope);
  }
  if (f.kind != Activation::none) return masked_activation(context, std::move(a), std::move(b), f);
  Tensor y = a.sole_owner() || context.output_unused() ? a.view(a.shape())
             : b.sole_owner()                          ? b.view(b.shape())
                                                       : context.allocate(a.shape(), a.dtype());
  if (context.output_unused()) {
    // y stands for the sum
  } else if (deferred_norm_of(a) != nullptr || deferred_norm_of(b) != nullptr)
    run_masked_forward(context, {}, a, b, y, Tensor());
  else
    BANTAM_KERNEL(context.exec, add, a.elements(), a.dtype(), a.data(), b.data(), y.data());
  if (!records(context, {&a, &b})) return y;
  const ValueRef a_ref = a, b_ref = b;
  context.tape->record_deferred(context, y, [=](const Context& ctx, Gradient dy, GradientStore& store) {
    if (!store.comes_next(a_ref) && !store.comes_next(b_ref)) dy = std::move(dy).tensor(ctx);
    store.add(ctx, a_ref, dy);
    store.add(ctx, b_ref, std::move(dy));
  });
  return y;
}

}  // namespace bantam::ops
