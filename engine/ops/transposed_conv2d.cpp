// Transposed convolution: forward is a convolution's input gradient; backward is that convolution's forward and its
// weight gradient with x and dy swapped. Backward keeps x (or its recipe) and reads w from the arena.
#include "bantam/engine/ops/transposed_conv2d.h"

#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/ops/conv2d.h"

namespace bantam::ops {
namespace {

using kernels::Conv2dPass;
using kernels::Conv2dShape;

constexpr const char* kOp = "transposed_conv2d";

void check_window(const TransposedWindow& transposed) {
  const auto& [window, extra] = transposed;
  const auto& [kernel, stride, dilation, padding] = window;
  if (std::min({kernel.h, kernel.w, stride.h, stride.w, dilation.h, dilation.w}) < 1)
    throw ShapeError(fmt::format("{}: kernel {}x{}, stride {}x{} and dilation {}x{} must be at least 1", kOp, kernel.h,
                                 kernel.w, stride.h, stride.w, dilation.h, dilation.w));
  if (std::min({padding.top, padding.bottom, padding.left, padding.right}) < 0)
    throw ShapeError(fmt::format("{}: padding must not be negative", kOp));
  if (extra.h < 0 || extra.w < 0 || extra.h >= std::max(stride.h, dilation.h) ||
      extra.w >= std::max(stride.w, dilation.w))
    throw ShapeError(
        fmt::format("{}: the output padding {}x{} must be smaller than the stride {}x{} or the dilation "
                    "{}x{}",
                    kOp, extra.h, extra.w, stride.h, stride.w, dilation.h, dilation.w));
  if (padding.kind == PaddingKind::same && extra != Extent2d{0, 0})
    throw ShapeError(
        fmt::format("{}: the output padding {}x{} has no place where padding is same: the output is the "
                    "input times the stride",
                    kOp, extra.h, extra.w));
}

/// Rows (or columns) at the end of an output: what is cut off, and zeros that no convolution of the input's size
/// reaches.
struct End {
  std::int64_t padding, zeros;
};
/// Output padding from the stride on, which dilation allows, first undoes the padding, whose rows have values.
End end_of(std::int64_t padding, std::int64_t output_padding, std::int64_t stride) {
  if (output_padding < stride) return {padding, 0};
  const std::int64_t rest = std::max<std::int64_t>(padding - output_padding, 0);
  return {rest, std::max<std::int64_t>(output_padding - (padding - rest) - (stride - 1), 0)};
}

End bottom_of(const TransposedWindow& t) {
  return end_of(t.window.padding.bottom, t.output_padding.h, t.window.stride.h);
}
End right_of(const TransposedWindow& t) {
  return end_of(t.window.padding.right, t.output_padding.w, t.window.stride.w);
}

Conv2dShape checked_shape(const Tensor& x, const Tensor& w, const TransposedWindow& transposed, std::int64_t groups) {
  check_image(kOp, x.shape());
  if (w.shape().rank() != 4)
    throw ShapeError(
        fmt::format("{}: expected a weight (C_in, kH, kW, C_out/groups), got {}", kOp, to_string(w.shape())));
  const std::int64_t channels = x.shape()[3], filters = w.shape()[3] * groups;
  if (w.shape()[0] != channels)
    throw ShapeError(fmt::format("{}: x {} and weight {} do not fit: expected {} input channels, the weight has {}",
                                 kOp, to_string(x.shape()), to_string(w.shape()), channels, w.shape()[0]));
  if (groups < 1 || channels % groups != 0)
    throw ShapeError(fmt::format("{}: {} input channels do not divide into {} groups", kOp, channels, groups));
  if (x.dtype() != w.dtype())
    throw DTypeError(fmt::format("{}: x is {} and the weight {}", kOp, to_string(x.dtype()), to_string(w.dtype())));
  return transposed_conv2d_shape(x.shape(), filters, transposed, groups);
}

/// The transposed convolution of x and w, and its backward.
Tensor input_gradient(const Context& context, const Conv2dShape& shape, const Tensor& x, const Tensor& w) {
  const DType dtype = x.dtype();
  Tensor y = context.allocate({shape.batch, shape.in_h, shape.in_w, shape.in_channels}, dtype);
  if (!context.output_unused()) {
    const Scratch scratch = conv2d_scratch(context, shape, dtype, Conv2dPass::grad_input);
    BANTAM_KERNEL(context.exec, conv2d_grad_input, shape, dtype, x.data(), w.data(), y.data(), scratch.get());
  }
  if (!records(context, {&x, &w})) return y;
  context.tape->record(
      context, y, [=, x = SavedTensor(x)](const Context& ctx, Tensor dy, GradientStore& store) mutable {
        if (wants_gradient(w)) {
          const Tensor input = x.unpack(ctx);  // gone before dx comes
          conv2d_weight_gradient(ctx, shape, {dy, input}, w, store);
        }
        if (!wants_gradient(x.ref())) return;
        Tensor dx = ctx.allocate(x.shape(), dtype);
        const Scratch scratch = conv2d_scratch(ctx, shape, dtype, Conv2dPass::forward);
        BANTAM_KERNEL(ctx.exec, conv2d_forward, shape, dtype, dy.data(), w.data(), dx.data(), scratch.get());
        store.add(ctx, x.ref(), std::move(dx));
      });
  return y;
}

}  // namespace

Extent2d transposed_output(const TransposedWindow& transposed, std::int64_t in_h, std::int64_t in_w) {
  check_window(transposed);
  const auto& [window, extra] = transposed;
  if (window.padding.kind == PaddingKind::same) return {in_h * window.stride.h, in_w * window.stride.w};
  Padding pad = window.padding;
  if (pad.kind == PaddingKind::valid) pad = Padding::symmetric(0);
  const Extent2d out{
      (in_h - 1) * window.stride.h - pad.top - pad.bottom + window.dilation.h * (window.kernel.h - 1) + extra.h + 1,
      (in_w - 1) * window.stride.w - pad.left - pad.right + window.dilation.w * (window.kernel.w - 1) + extra.w + 1};
  if (out.h < 1 || out.w < 1)
    throw ShapeError(fmt::format("{}: an input of {}x{} with padding {}+{}, {}+{} makes an output of {}x{}", kOp, in_h,
                                 in_w, pad.top, pad.bottom, pad.left, pad.right, out.h, out.w));
  return out;
}

Conv2dShape transposed_conv2d_shape(const Shape& in, std::int64_t filters, const TransposedWindow& transposed,
                                    std::int64_t groups) {
  const Extent2d out = transposed_output(transposed, in[1], in[2]);
  const End bottom = bottom_of(transposed), right = right_of(transposed);
  Window2d window = transposed.window;
  window.padding.bottom = bottom.padding, window.padding.right = right.padding;
  return conv2d_shape({in[0], out.h - bottom.zeros, out.w - right.zeros, filters}, in[3], window, groups);
}

Tensor transposed_conv2d(const Context& context, const Tensor& x, const Tensor& w, Window2d window,
                         Extent2d output_padding, std::int64_t groups) {
  if (w.shape().rank() == 4) window.kernel = {w.shape()[1], w.shape()[2]};
  const TransposedWindow transposed{window, output_padding};
  const Conv2dShape shape = checked_shape(x, w, transposed, groups);
  context.check_device(kOp, {&x, &w});
  const std::int64_t rows = bottom_of(transposed).zeros, columns = right_of(transposed).zeros;
  if (rows == 0 && columns == 0) return input_gradient(context, shape, x, w);
  const Tensor reached = input_gradient(context.inner(), shape, x, w);
  return pad2d(context, reached, {PaddingKind::explicit_, 0, rows, 0, columns});
}

}  // namespace bantam::ops
