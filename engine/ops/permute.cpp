// Axes in another order: backward is the inverse order and keeps nothing.
#include "bantam/kernels/image/permute.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/engine/ops/unary.h"

namespace bantam::ops {
namespace {

/// Throws unless `order` has each axis of `shape` once.
void check_order(const Shape& shape, std::span<const int> order) {
  std::vector<int> axes(order.begin(), order.end()), all(static_cast<std::size_t>(shape.rank()));
  std::ranges::sort(axes);
  std::iota(all.begin(), all.end(), 0);
  if (axes != all)
    throw ShapeError(
        fmt::format("permute: expected each axis of x {} once, got ({})", to_string(shape), fmt::join(order, ", ")));
}

}  // namespace

Tensor permute(const Context& context, const Tensor& x, std::span<const int> order) {
  context.check_device("permute", {&x});
  check_order(x.shape(), order);
  std::vector<std::int64_t> extents;
  std::vector<int> inverse(order.size());
  for (const int axis : order) {
    inverse[static_cast<std::size_t>(axis)] = static_cast<int>(extents.size());
    extents.push_back(x.shape()[axis]);
  }
  const Shape out{std::span<const std::int64_t>(extents)};
  const DType dtype = x.dtype();
  if (x.elements() == 0) return reshape(context, x, out);
  const kernels::PermuteShape shape = kernels::permute_shape(x.shape(), order);
  if (shape.is_view()) return reshape(context, x, out);
  const kernels::PermuteShape back = kernels::permute_shape(out, inverse);
  Tensor y = context.allocate(out, dtype);
  if (!context.output_unused()) BANTAM_KERNEL(context.exec, permute, shape, dtype, x.data(), y.data());
  y = record_unary(context, x, std::move(y), [=](const Context& ctx, const Tensor& dy, const Tensor& dx) {
    BANTAM_KERNEL(ctx.exec, permute, back, dtype, dy.data(), dx.data());
  });
  if (records(context, {&x}) && kept_anyway(x)) {
    const SavedTensor saved = x;
    attach_recipe(context, y, {&saved}, [=](const Context& ctx) {
      const Tensor from = saved.get(ctx);
      Tensor again = ctx.allocate(out, dtype);
      BANTAM_KERNEL(ctx.exec, permute, shape, dtype, from.data(), again.data());
      return again;
    });
  }
  return y;
}

}  // namespace bantam::ops
