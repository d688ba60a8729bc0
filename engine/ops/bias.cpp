// Bias: db is a sum over rows, dx is dy itself.
#include "bantam/kernels/contracts/elementwise/bias.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/gradient_target.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/ops/ops.h"

namespace bantam::ops {

Tensor bias_add(const Context& context, Tensor x, const Tensor& b) {
  context.check_device("bias_add", {&x, &b});
  if (x.shape().rank() < 1 || b.shape() != Shape{x.shape()[-1]})
    throw ShapeError(fmt::format("bias_add: x {} and bias {} do not fit; expected as many values as the last axis has",
                                 to_string(x.shape()), to_string(b.shape())));
  if (x.dtype() != b.dtype())
    throw DTypeError(fmt::format("bias_add: x is {} and the bias {}", to_string(x.dtype()), to_string(b.dtype())));
  const std::int64_t channels = x.shape()[-1], rows = channels == 0 ? 0 : x.elements() / channels;
  Tensor y = reuse_or_allocate(context, x);
  BANTAM_KERNEL(context.exec, bias_forward, rows, channels, x.dtype(), x.data(), b.data(), y.data());
  if (!records(context, {&x, &b})) return y;
  context.tape->record(context, y, [=, x_ref = ValueRef(x)](const Context& ctx, Tensor dy, GradientStore& store) {
    if (FloatGradient db(ctx, b, store); db.data != nullptr) {
      const Scratch scratch = ctx.scratch(kernels::bias_grad_workspace_bytes(rows, channels, ctx.device.kind));
      BANTAM_KERNEL(ctx.exec, bias_grad, rows, channels, dy.dtype(), dy.data(), db.data, db.accumulate, scratch.get());
      db.add_to(ctx, b, store);
    }
    store.add(ctx, x_ref, std::move(dy));
  });
  return y;
}

}  // namespace bantam::ops
