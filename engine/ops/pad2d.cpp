// Padding and cropping: backward keeps nothing.
#include "bantam/engine/ops/pad2d.h"

#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/ops/unary.h"

namespace bantam::ops {
namespace {

/// One axis: `in` with amounts before and after it.
struct Side {
  const char* name;
  std::int64_t in, before, after;
};

void check_side(const char* op, const Side& side, PaddingMode mode) {
  constexpr std::int64_t kMost = 1 << 24;
  const auto& [name, in, before, after] = side;
  const std::int64_t most = std::max(before, after), least = std::min(before, after);
  if (most > kMost || least < -kMost || in > kMost)
    throw ShapeError(fmt::format("{}: expected amounts and extents of at most {}, got {} with {} and {} around it", op,
                                 kMost, in, before, after));
  const std::int64_t left = in + std::min<std::int64_t>(before, 0) + std::min<std::int64_t>(after, 0);
  if (left < 1)
    throw ShapeError(fmt::format("{}: cropping {} and {} leaves nothing of a {} of {}", op, -before, -after, name, in));
  if (mode == PaddingMode::reflect && most >= left)
    throw ShapeError(fmt::format("{}: mirrored padding {} must be smaller than the {} {}", op, most, name, left));
  if (mode == PaddingMode::circular && most > left)
    throw ShapeError(fmt::format("{}: circular padding {} must not be larger than the {} {}", op, most, name, left));
}

kernels::EdgeMode mode_of(PaddingMode mode) {
  switch (mode) {
    case PaddingMode::replicate:
      return kernels::EdgeMode::replicate;
    case PaddingMode::reflect:
      return kernels::EdgeMode::reflect;
    case PaddingMode::circular:
      return kernels::EdgeMode::circular;
    case PaddingMode::zeros:
      break;
  }
  return kernels::EdgeMode::zeros;
}

}  // namespace

kernels::Pad2dShape pad2d_shape(const char* op, const Shape& in, const Padding& amounts, PaddingMode mode) {
  if (amounts.kind == PaddingKind::same) throw ShapeError(fmt::format("{}: expected explicit amounts, got same", op));
  const auto& [kind, top, bottom, left, right] = amounts;
  check_side(op, {"height", in[1], top, bottom}, mode);
  check_side(op, {"width", in[2], left, right}, mode);
  return {in[0], in[1], in[2], in[3], top, bottom, left, right, mode_of(mode)};
}

Tensor pad2d(const Context& context, const Tensor& x, const Padding& amounts, PaddingMode mode) {
  context.check_device("pad2d", {&x});
  check_image("pad2d", x.shape());
  const kernels::Pad2dShape shape = pad2d_shape("pad2d", x.shape(), amounts, mode);
  const DType dtype = x.dtype();
  Tensor y = context.allocate({shape.batch, shape.out_h(), shape.out_w(), shape.channels}, dtype);
  if (!context.output_unused()) BANTAM_KERNEL(context.exec, pad2d_forward, shape, dtype, x.data(), y.data());
  return record_unary(context, x, std::move(y), [=](const Context& ctx, const Tensor& dy, const Tensor& dx) {
    BANTAM_KERNEL(ctx.exec, pad2d_grad_input, shape, dtype, dy.data(), dx.data());
  });
}

}  // namespace bantam::ops
