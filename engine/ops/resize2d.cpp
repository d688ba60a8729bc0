// Resizing: backward keeps nothing.
#include "bantam/engine/ops/resize2d.h"

#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/ops/unary.h"

namespace bantam::ops {

kernels::Resize2dShape resize2d_shape(const char* op, const Shape& in, const ResizeSettings& settings) {
  constexpr std::int64_t kMost = 1 << 24;
  const Extent2d& size = settings.size;
  if (std::min({size.h, size.w, in[1], in[2]}) < 1 || std::max({size.h, size.w, in[1], in[2]}) > kMost)
    throw ShapeError(
        fmt::format("{}: expected extents from 1 to {}, got {}x{} to {}x{}", op, kMost, in[1], in[2], size.h, size.w));
  kernels::ResizeMode mode = kernels::ResizeMode::nearest;
  if (settings.interpolation == Interpolation::bilinear)
    mode = settings.align_corners ? kernels::ResizeMode::bilinear_align_corners : kernels::ResizeMode::bilinear;
  return {in[0], in[1], in[2], in[3], size.h, size.w, mode};
}

Tensor resize2d(const Context& context, const Tensor& x, const ResizeSettings& settings) {
  context.check_device("resize2d", {&x});
  check_image("resize2d", x.shape());
  const kernels::Resize2dShape shape = resize2d_shape("resize2d", x.shape(), settings);
  const DType dtype = x.dtype();
  Tensor y = context.allocate({shape.batch, shape.out_h, shape.out_w, shape.channels}, dtype);
  if (!context.output_unused()) BANTAM_KERNEL(context.exec, resize2d_forward, shape, dtype, x.data(), y.data());
  return record_unary(context, x, std::move(y), [=](const Context& ctx, const Tensor& dy, const Tensor& dx) {
    BANTAM_KERNEL(ctx.exec, resize2d_grad_input, shape, dtype, dy.data(), dx.data());
  });
}

}  // namespace bantam::ops
