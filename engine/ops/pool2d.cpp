// Pooling: max keeps each window's winner, average nothing.
#include "bantam/engine/ops/pool2d.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/contracts/pool/pool2d.h"

namespace bantam::ops {
namespace {

Window2d whole_image(const char* op, const Tensor& x) {
  check_image(op, x.shape());
  return {.kernel = {x.shape()[1], x.shape()[2]}, .stride = {x.shape()[1], x.shape()[2]}};
}

}  // namespace

Padding check_pool_window(const char* op, std::int64_t in_h, std::int64_t in_w, const Window2d& window, bool maximum) {
  const Padding pad = window.resolve(op, in_h, in_w);
  if (window.dilation != Extent2d{}) throw ShapeError(fmt::format("{}: windows have no dilation", op));
  if (pad.top >= window.kernel.h || pad.bottom >= window.kernel.h || pad.left >= window.kernel.w ||
      pad.right >= window.kernel.w)
    throw ShapeError(
        fmt::format("{}: padding must be smaller than the window {}x{}", op, window.kernel.h, window.kernel.w));
  if (maximum && window.kernel.h * window.kernel.w > 65535)  // winners are uint16
    throw ShapeError(
        fmt::format("{}: a window holds at most 65535 positions, got {}x{}", op, window.kernel.h, window.kernel.w));
  return pad;
}

kernels::Pool2dShape pool_shape(const Context& context, const char* op, const Tensor& x, const Window2d& window,
                                bool maximum) {
  context.check_device(op, {&x});
  check_image(op, x.shape());
  const Padding pad = check_pool_window(op, x.shape()[1], x.shape()[2], window, maximum);
  return {.batch = x.shape()[0],
          .in_h = x.shape()[1],
          .in_w = x.shape()[2],
          .channels = x.shape()[3],
          .window_h = window.kernel.h,
          .window_w = window.kernel.w,
          .stride_h = window.stride.h,
          .stride_w = window.stride.w,
          .pad_top = pad.top,
          .pad_bottom = pad.bottom,
          .pad_left = pad.left,
          .pad_right = pad.right};
}

Shape pool_output(const kernels::Pool2dShape& shape) {
  return {shape.batch, shape.out_h(), shape.out_w(), shape.channels};
}

Tensor allocate_winners(const Context& context, const Shape& output) {
  return context.allocate(output.with(3, output[3] * 2), DType::uint8);
}

Tensor max_pool2d(const Context& context, const Tensor& x, Window2d window) {
  const kernels::Pool2dShape shape = pool_shape(context, "max_pool2d", x, window, true);
  const bool recorded = records(context, {&x});
  Tensor y = context.allocate(pool_output(shape), x.dtype());
  const Tensor winner = recorded ? allocate_winners(context, y.shape()) : Tensor();
  BANTAM_KERNEL(context.exec, max_pool2d_forward, shape, x.dtype(), x.data(), y.data(),
                recorded ? winner.as<std::uint16_t>() : nullptr);
  if (!recorded) return y;
  context.tape->record(
      context, y, [=, x_ref = ValueRef(x), x_shape = x.shape()](const Context& ctx, Tensor dy, GradientStore& store) {
        Tensor dx = ctx.allocate(x_shape, dy.dtype());
        BANTAM_KERNEL(ctx.exec, max_pool2d_grad_input, shape, dy.dtype(), dy.data(), winner.as<std::uint16_t>(),
                      dx.data());
        store.add(ctx, x_ref, std::move(dx));
      });
  return y;
}

Tensor avg_pool2d(const Context& context, const Tensor& x, Window2d window, bool count_padding) {
  const kernels::Pool2dShape shape = pool_shape(context, "avg_pool2d", x, window, false);
  Tensor y = context.allocate(pool_output(shape), x.dtype());
  BANTAM_KERNEL(context.exec, avg_pool2d_forward, shape, x.dtype(), count_padding, x.data(), y.data());
  if (!records(context, {&x})) return y;
  context.tape->record(
      context, y, [=, x_ref = ValueRef(x), x_shape = x.shape()](const Context& ctx, Tensor dy, GradientStore& store) {
        Tensor dx = ctx.allocate(x_shape, dy.dtype());
        BANTAM_KERNEL(ctx.exec, avg_pool2d_grad_input, shape, dy.dtype(), count_padding, dy.data(), dx.data());
        store.add(ctx, x_ref, std::move(dx));
      });
  return y;
}

Tensor global_avg_pool2d(const Context& context, const Tensor& x) {
  return flatten(context, avg_pool2d(context, x, whole_image("global_avg_pool2d", x)));
}

Tensor global_max_pool2d(const Context& context, const Tensor& x) {
  return flatten(context, max_pool2d(context, x, whole_image("global_max_pool2d", x)));
}

}  // namespace bantam::ops
