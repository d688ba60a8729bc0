// Backward of ops of one tensor that keep nothing of it but its shape.
#pragma once

#include <utility>

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tape.h"

namespace bantam::ops {

/// Returns y, computed from x alone, and where x wants a gradient records how it is computed: `grad(context, dy, dx)`
/// overwrites all of dx, which has x's shape and dy's type.
template <class Grad>
Tensor record_unary(const Context& context, const Tensor& x, Tensor y, Grad grad) {
  if (records(context, {&x}))
    context.tape->record(context, y,
                         [grad = std::move(grad), x_ref = ValueRef(x), shape = x.shape()](
                             const Context& ctx, const Tensor& dy, GradientStore& store) {
                           Tensor dx = ctx.allocate(shape, dy.dtype());
                           grad(ctx, dy, dx);
                           store.add(ctx, x_ref, std::move(dx));
                         });
  return y;
}

}  // namespace bantam::ops
