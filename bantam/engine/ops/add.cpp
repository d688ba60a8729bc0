// Add: both inputs get dy itself.
#include "bantam/engine/ops/add.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/tape.h"
#include "bantam/kernels/elementwise.h"

namespace bantam::ops {

Tensor add(const Context& context, Tensor a, Tensor b) {
  context.check_device("add", {&a, &b});
  if (a.shape() != b.shape())
    throw ShapeError(fmt::format("add: {} and {} differ", to_string(a.shape()), to_string(b.shape())));
  if (a.dtype() != b.dtype())
    throw DTypeError(fmt::format("add: {} and {} differ", to_string(a.dtype()), to_string(b.dtype())));
  Tensor y = a.sole_owner()   ? a.view(a.shape())
             : b.sole_owner() ? b.view(b.shape())
                              : context.allocate(a.shape(), a.dtype());
  BANTAM_KERNEL(context.exec, add, a.elements(), a.dtype(), a.data(), b.data(), y.data());
  if (!records(context, {&a, &b})) return y;
  const ValueRef a_ref = a, b_ref = b;
  context.tape->record(context, y, [=](const Context& ctx, Tensor dy, GradientStore& store) {
    store.add(ctx, a_ref, dy);
    store.add(ctx, b_ref, std::move(dy));
  });
  return y;
}

}  // namespace bantam::ops
