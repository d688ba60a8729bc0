// Channels to pixels: backward is the inverse and keeps nothing.
#include "bantam/kernels/image/depth_to_space.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/engine/ops/unary.h"

namespace bantam::ops {

Tensor depth_to_space(const Context& context, const Tensor& x, std::int64_t block, DepthOrder order) {
  context.check_device("depth_to_space", {&x});
  check_image("depth_to_space", x.shape());
  const Shape& in = x.shape();
  if (block < 1 || block > 1 << 12 || in[3] % (block * block) != 0)
    throw ShapeError(
        fmt::format("depth_to_space: {} channels do not divide into blocks of {}x{}", in[3], block, block));
  const kernels::DepthToSpaceShape shape{
      in[0], in[1], in[2], in[3] / (block * block), block, order == DepthOrder::channel_first};
  const DType dtype = x.dtype();
  Tensor y = context.allocate({in[0], in[1] * block, in[2] * block, shape.channels}, dtype);
  if (!context.output_unused()) BANTAM_KERNEL(context.exec, depth_to_space, shape, dtype, x.data(), y.data());
  return record_unary(context, x, std::move(y), [=](const Context& ctx, const Tensor& dy, const Tensor& dx) {
    BANTAM_KERNEL(ctx.exec, space_to_depth, shape, dtype, dy.data(), dx.data());
  });
}

}  // namespace bantam::ops
