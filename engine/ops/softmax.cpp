// Softmax over the last axis: backward keeps y.
#include "bantam/kernels/head/softmax.h"

#include "bantam/base/error.h"
#include "bantam/engine/autograd/gradient_target.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/ops/ops.h"

namespace bantam::ops {

Tensor softmax(const Context& context, Tensor x) {
  context.check_device("softmax", {&x});
  if (x.shape().rank() < 1) throw ShapeError("softmax: expected (…, classes), got a scalar");
  const std::int64_t columns = x.shape()[-1], rows = columns == 0 ? 0 : x.elements() / columns;
  const bool recorded = records(context, {&x});
  const ValueRef x_ref = x;
  Tensor y = reuse_or_allocate(context, x);
  BANTAM_KERNEL(context.exec, softmax_forward, rows, columns, x.dtype(), x.data(), y.data());
  if (!recorded) return y;
  context.tape->record(
      context, y, [=, saved = SavedTensor(y)](const Context& ctx, Tensor dy, GradientStore& store) mutable {
        Tensor dx = reuse_or_allocate(ctx, dy);
        const Tensor output = saved.unpack(ctx);
        BANTAM_KERNEL(ctx.exec, softmax_grad, rows, columns, dy.dtype(), output.data(), dy.data(), dx.data());
        store.add(ctx, x_ref, std::move(dx));
      });
  return y;
}

}  // namespace bantam::ops
