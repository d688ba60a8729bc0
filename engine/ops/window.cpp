// Checks of windows, and Keras' "same" padding.
#include "bantam/engine/ops/window.h"

#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

/// Total padding along one axis so that the output has ⌈in/stride⌉ positions.
std::int64_t same_total(std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t dilation) {
  const std::int64_t out = (in + stride - 1) / stride;
  return std::max<std::int64_t>(0, (out - 1) * stride + (kernel - 1) * dilation + 1 - in);
}

}  // namespace

Padding Window2d::resolve(const char* op, std::int64_t in_h, std::int64_t in_w) const {
  if (std::min({kernel.h, kernel.w, stride.h, stride.w, dilation.h, dilation.w}) < 1)
    throw ShapeError(fmt::format("{}: kernel {}x{}, stride {}x{} and dilation {}x{} must be at least 1", op, kernel.h,
                                 kernel.w, stride.h, stride.w, dilation.h, dilation.w));
  Padding amounts{PaddingKind::explicit_, padding.top, padding.bottom, padding.left, padding.right};
  if (padding.kind == PaddingKind::valid) amounts = Padding::symmetric(0);
  if (padding.kind == PaddingKind::same) {
    const std::int64_t h = same_total(in_h, kernel.h, stride.h, dilation.h);
    const std::int64_t w = same_total(in_w, kernel.w, stride.w, dilation.w);
    amounts = {PaddingKind::explicit_, h / 2, h - h / 2, w / 2, w - w / 2};
  }
  if (std::min({amounts.top, amounts.bottom, amounts.left, amounts.right}) < 0)
    throw ShapeError(fmt::format("{}: padding must not be negative", op));
  const std::int64_t span_h = (kernel.h - 1) * dilation.h + 1, span_w = (kernel.w - 1) * dilation.w + 1;
  if (in_h + amounts.top + amounts.bottom < span_h || in_w + amounts.left + amounts.right < span_w)
    throw ShapeError(fmt::format("{}: a window of {}x{} does not fit an input of {}x{} with padding {}+{}, {}+{}", op,
                                 span_h, span_w, in_h, in_w, amounts.top, amounts.bottom, amounts.left, amounts.right));
  return amounts;
}

void check_image(const char* op, const Shape& x) {
  if (x.rank() != 4)
    throw ShapeError(fmt::format("{}: expected (batch, height, width, channels), got {}", op, to_string(x)));
}

}  // namespace bantam
