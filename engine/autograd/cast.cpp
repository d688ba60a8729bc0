// Cast: the gradient goes back in x's type.
#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/kernels/elementwise/elementwise.h"

namespace bantam::ops {

Tensor cast(const Context& context, const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  context.check_device("cast", {&x});
  Tensor y = context.allocate(x.shape(), dtype);
  BANTAM_KERNEL(context.exec, cast, x.elements(), x.dtype(), x.data(), dtype, y.data());
  if (!records(context, {&x})) return y;
  context.tape->record(context, y,
                       [x_ref = ValueRef(x), from = x.dtype()](const Context& ctx, Tensor dy, GradientStore& store) {
                         store.add(ctx, x_ref, cast(ctx, dy, from));
                       });
  return y;
}

}  // namespace bantam::ops
