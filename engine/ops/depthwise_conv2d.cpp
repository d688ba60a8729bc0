// Depthwise convolution: backward keeps x (or its recipe) and reads w from the arena.
#include "bantam/engine/ops/depthwise_conv2d.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/gradient_target.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/engine/ops/window.h"
#include "bantam/kernels/depthwise/depthwise_conv2d.h"

namespace bantam::ops {

kernels::DepthwiseConv2dShape depthwise_conv2d_shape(const char* op, const Shape& in, std::int64_t multiplier,
                                                     const Window2d& window) {
  auto shape = window_shape<kernels::DepthwiseConv2dShape>(op, in, window);
  shape.channels = in[3], shape.multiplier = multiplier;
  return shape;
}

kernels::DepthwiseConv2dShape depthwise_conv2d_shape(const char* op, const Tensor& x, const Tensor& w,
                                                     Window2d window) {
  check_image(op, x.shape());
  const std::int64_t channels = x.shape()[3];
  if (w.shape().rank() != 3 || channels == 0 || w.shape()[2] < channels || w.shape()[2] % channels != 0)
    throw ShapeError(fmt::format("{}: x {} and weight {} do not fit: expected (kH, kW, {}·multiplier)", op,
                                 to_string(x.shape()), to_string(w.shape()), channels));
  if (x.dtype() != w.dtype())
    throw DTypeError(fmt::format("{}: x is {} and the weight {}", op, to_string(x.dtype()), to_string(w.dtype())));
  window.kernel = {w.shape()[0], w.shape()[1]};
  return depthwise_conv2d_shape(op, x.shape(), w.shape()[2] / channels, window);
}

Tensor depthwise_conv2d(const Context& context, const Tensor& x, const Tensor& w, Window2d window) {
  const kernels::DepthwiseConv2dShape shape = depthwise_conv2d_shape("depthwise_conv2d", x, w, window);
  context.check_device("depthwise_conv2d", {&x, &w});
  const DType dtype = x.dtype();
  Tensor y = context.allocate({shape.batch, shape.out_h(), shape.out_w(), shape.out_channels()}, dtype);
  BANTAM_KERNEL(context.exec, depthwise_conv2d_forward, shape, dtype, x.data(), w.data(), y.data());
  if (!records(context, {&x, &w})) return y;
  context.tape->record(
      context, y, [=, x = SavedTensor(x)](const Context& ctx, Tensor dy, GradientStore& store) mutable {
        if (FloatGradient dw(ctx, w, store); dw.data != nullptr) {
          const Tensor input = x.unpack(ctx);  // gone before dx comes
          const Scratch scratch =
              ctx.scratch(kernels::depthwise_conv2d_grad_weight_workspace_bytes(shape, dtype, ctx.device.kind));
          BANTAM_KERNEL(ctx.exec, depthwise_conv2d_grad_weight, shape, dtype, input.data(), dy.data(), dw.data,
                        dw.accumulate, scratch.get());
          dw.add_to(ctx, w, store);
        }
        if (!wants_gradient(x.ref())) return;
        Tensor dx = ctx.allocate(x.shape(), dtype);
        BANTAM_KERNEL(ctx.exec, depthwise_conv2d_grad_input, shape, dtype, dy.data(), w.data(), dx.data());
        store.add(ctx, x.ref(), std::move(dx));
      });
  return y;
}

}  // namespace bantam::ops
