// Pooling: max keeps each window's winner, and its output where it multiplies the gradient by relu'; average nothing.
#include "bantam/engine/ops/pool2d.h"

#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/gradient_operands.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/engine/ops/unary.h"
#include "bantam/kernels/pool/pool2d.h"
#include "bantam/kernels/pool/pool_relu.h"

namespace bantam::ops {
namespace {

Window2d whole_image(const char* op, const Tensor& x) {
  check_image(op, x.shape());
  return {.kernel = {x.shape()[1], x.shape()[2]}, .stride = {x.shape()[1], x.shape()[2]}};
}

/// One axis of a pooling.
struct Axis {
  std::int64_t in, window, stride, dilation, before, after;

  /// How far the last window reaches over the padded axis with ceil mode. Source: PyTorch's pooling_output_shape.
  std::int64_t overhang() const {
    const std::int64_t padded = in + before + after, span = (window - 1) * dilation + 1;
    std::int64_t steps = std::max<std::int64_t>(0, padded - span + stride - 1) / stride;
    if (steps * stride >= in + before) --steps;
    return std::max<std::int64_t>(0, steps * stride + span - padded);
  }
  /// Whether every window has a position in the image. Without dilation it has.
  bool all_real(std::int64_t windows) const {
    for (std::int64_t o = 0; dilation > 1 && o < windows; ++o) {
      const std::int64_t start = o * stride - before;
      const std::int64_t first = start >= 0 ? start : start + (dilation - 1 - start) / dilation * dilation;
      if (first >= in || first > start + (window - 1) * dilation) return false;
    }
    return true;
  }
};

/// The window's padding. With ceil mode it need not fit what it is laid on.
Padding padding_of(const char* op, const Shape& x, const PoolWindow& pool) {
  const Window2d& window = pool.window;
  if (!pool.ceil_mode || window.padding.kind == PaddingKind::same) return window.resolve(op, x[1], x[2]);
  return window.resolve(op, x[1] + window.kernel.h * window.dilation.h, x[2] + window.kernel.w * window.dilation.w);
}

Shape input_of(const kernels::Pool2dShape& shape) { return {shape.batch, shape.in_h, shape.in_w, shape.channels}; }

/// The gradient of x, a SumActivation that nobody else reads, multiplied by relu', with its sums; y are x's maxima.
Gradient masked_gradient(const Context& context, const kernels::Pool2dShape& shape, const Tensor& dy, const Tensor& y,
                         const Tensor& winner, const GradientStore& store) {
  const DType dtype = dy.dtype();
  Tensor unmasked;
  if (store.observed()) {
    unmasked = context.allocate(input_of(shape), dtype);
    BANTAM_KERNEL(context.exec, max_pool2d_grad_input, shape, dtype, dy.data(), winner.as<std::uint16_t>(),
                  unmasked.data());
  }
  Tensor dz = context.allocate(input_of(shape), dtype);
  const Tensor sums = context.allocate({shape.channels}, DType::float32);
  const Scratch scratch =
      context.scratch(kernels::max_pool2d_relu_grad_workspace_bytes(shape, dtype, context.device.kind));
  BANTAM_KERNEL(context.exec, max_pool2d_relu_grad, shape, dtype, dy.data(), y.data(), winner.as<std::uint16_t>(),
                dz.data(), sums.as<float>(), scratch.get());
  return Gradient::of_sum(std::move(dz), sums, std::move(unmasked));
}

}  // namespace

kernels::Pool2dShape pool_shape(const char* op, const Shape& x, const PoolWindow& pool, bool maximum) {
  const auto& [kernel, stride, dilation, padding] = pool.window;
  const Padding pad = padding_of(op, x, pool);
  const Extent2d span{(kernel.h - 1) * dilation.h + 1, (kernel.w - 1) * dilation.w + 1};
  if (pad.top >= span.h || pad.bottom >= span.h || pad.left >= span.w || pad.right >= span.w)
    throw ShapeError(fmt::format("{}: padding must be smaller than the window {}x{}", op, span.h, span.w));
  if (maximum && kernel.h * kernel.w > 65535)  // winners are uint16
    throw ShapeError(fmt::format("{}: a window holds at most 65535 positions, got {}x{}", op, kernel.h, kernel.w));
  const Axis h{x[1], kernel.h, stride.h, dilation.h, pad.top, pad.bottom},
      w{x[2], kernel.w, stride.w, dilation.w, pad.left, pad.right};
  kernels::Pool2dShape shape{x[0],     x[1],    x[2],       x[3],     kernel.h,  kernel.w,   stride.h,
                             stride.w, pad.top, pad.bottom, pad.left, pad.right, dilation.h, dilation.w};
  if (pool.ceil_mode) shape.overhang_h = h.overhang(), shape.overhang_w = w.overhang();
  if (!h.all_real(shape.out_h()) || !w.all_real(shape.out_w()))
    throw ShapeError(
        fmt::format("{}: a window of {}x{} with dilation {}x{} would hold padding alone on an input of {}x{}", op,
                    kernel.h, kernel.w, dilation.h, dilation.w, x[1], x[2]));
  return shape;
}

kernels::Pool2dShape pool_shape(const Context& context, const char* op, const Tensor& x, const PoolWindow& pool,
                                bool maximum) {
  context.check_device(op, {&x});
  check_image(op, x.shape());
  return pool_shape(op, x.shape(), pool, maximum);
}

Shape pool_output(const kernels::Pool2dShape& shape) {
  return {shape.batch, shape.out_h(), shape.out_w(), shape.channels};
}

Tensor allocate_winners(const Context& context, const Shape& output) {
  return context.allocate(output.with(3, output[3] * 2), DType::uint8);
}

Tensor max_pool2d(const Context& context, const Tensor& x, Window2d window, bool ceil_mode) {
  const kernels::Pool2dShape shape = pool_shape(context, "max_pool2d", x, {window, ceil_mode}, true);
  const bool recorded = records(context, {&x});
  Tensor y = context.allocate(pool_output(shape), x.dtype());
  const Tensor winner = recorded ? allocate_winners(context, y.shape()) : Tensor();
  BANTAM_KERNEL(context.exec, max_pool2d_forward, shape, x.dtype(), x.data(), y.data(),
                recorded ? winner.as<std::uint16_t>() : nullptr);
  if (recorded && context.plan().masks_gradient && sum_activation_of(x) != nullptr) {
    context.tape->record(context, y,
                         [=, x_ref = ValueRef(x), y = SavedTensor(y)](const Context& ctx, const Tensor& dy,
                                                                      GradientStore& store) mutable {
                           store.add(ctx, x_ref, masked_gradient(ctx, shape, dy, y.unpack(ctx), winner, store));
                         });
    return y;
  }
  return record_unary(context, x, std::move(y), [=](const Context& ctx, const Tensor& dy, const Tensor& dx) {
    BANTAM_KERNEL(ctx.exec, max_pool2d_grad_input, shape, dy.dtype(), dy.data(), winner.as<std::uint16_t>(), dx.data());
  });
}

Tensor avg_pool2d(const Context& context, const Tensor& x, Window2d window, bool count_padding, bool ceil_mode) {
  const kernels::Pool2dShape shape = pool_shape(context, "avg_pool2d", x, {window, ceil_mode}, false);
  Tensor y = context.allocate(pool_output(shape), x.dtype());
  BANTAM_KERNEL(context.exec, avg_pool2d_forward, shape, x.dtype(), count_padding, x.data(), y.data());
  return record_unary(context, x, std::move(y), [=](const Context& ctx, const Tensor& dy, const Tensor& dx) {
    BANTAM_KERNEL(ctx.exec, avg_pool2d_grad_input, shape, dy.dtype(), count_padding, dy.data(), dx.data());
  });
}

Tensor global_avg_pool2d(const Context& context, const Tensor& x) {
  return flatten(context, avg_pool2d(context, x, whole_image("global_avg_pool2d", x)));
}

Tensor global_max_pool2d(const Context& context, const Tensor& x) {
  return flatten(context, max_pool2d(context, x, whole_image("global_max_pool2d", x)));
}

}  // namespace bantam::ops
