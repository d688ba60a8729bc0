// A slice is one part of a split; a shuffle splits the channels into groups and interleaves them. Backward keeps
// nothing.
#include "bantam/engine/ops/channel_views.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/engine/ops/unary.h"
#include "bantam/kernels/join/concat.h"

namespace bantam::ops {
namespace {

using kernels::JoinShape;
using kernels::kMostJoined;

std::int64_t rows_of(const Shape& shape) { return shape[-1] == 0 ? 0 : shape.elements() / shape[-1]; }

/// Parts of `width` columns each of an array of `rows` rows, from part `first` on, as many as one call can have.
JoinShape equal_parts(std::int64_t rows, std::int64_t parts, std::int64_t width, std::int64_t first) {
  JoinShape shape{.rows = rows, .channels = parts * width};
  shape.count = static_cast<int>(std::min<std::int64_t>(parts - first, kMostJoined));
  for (int i = 0; i <= shape.count; ++i) shape.begin[i] = (first + i) * width;
  return shape;
}

/// y[r, j·groups + i] = x[r, i·size + j]: part i of x, a column of (rows·size, groups).
void shuffle(const Context& context, std::int64_t groups, const Tensor& x, const Tensor& y) {
  const std::int64_t size = x.shape()[-1] / groups, rows = rows_of(x.shape());
  for (std::int64_t first = 0; first < groups; first += kMostJoined) {
    const JoinShape cut = equal_parts(rows, groups, size, first), joined = equal_parts(rows * size, groups, 1, first);
    std::vector<Tensor> parts;
    kernels::SplitOutputs outputs;
    kernels::ConcatInputs inputs;
    for (int i = 0; i < cut.count; ++i) {
      parts.push_back(context.allocate({rows, size}, x.dtype()));
      outputs.data[i] = parts.back().data();
      inputs.data[i] = parts.back().data();
    }
    BANTAM_KERNEL(context.exec, split, cut, x.dtype(), kernels::SplitInput{x.data()}, outputs);
    BANTAM_KERNEL(context.exec, concat, joined, x.dtype(), inputs, y.data());
  }
}

}  // namespace

Tensor channel_slice(const Context& context, const Tensor& x, std::int64_t begin, std::int64_t end) {
  context.check_device("channel_slice", {&x});
  const Shape in = x.shape();
  if (in.rank() < 1 || begin < 0 || begin >= end || end > in[-1])
    throw ShapeError(fmt::format("channel_slice: channels {} to {} of an input {}", begin, end, to_string(in)));
  const DType dtype = x.dtype();
  const JoinShape shape{.rows = rows_of(in), .channels = in[-1], .count = 1, .begin = {begin, end}};
  Tensor y = context.allocate(in.with(-1, end - begin), dtype);
  if (!context.output_unused()) {
    kernels::SplitOutputs outputs;
    outputs.data[0] = y.data();
    BANTAM_KERNEL(context.exec, split, shape, dtype, kernels::SplitInput{x.data()}, outputs);
  }
  return record_unary(context, x, std::move(y), [=](const Context& ctx, const Tensor& dy, const Tensor& dx) {
    zero_bytes(dx.data(), dx.bytes(), ctx.stream);
    kernels::ConcatInputs inputs;
    inputs.data[0] = dy.data();
    BANTAM_KERNEL(ctx.exec, concat, shape, dtype, inputs, dx.data());
  });
}

Tensor channel_shuffle(const Context& context, const Tensor& x, std::int64_t groups) {
  context.check_device("channel_shuffle", {&x});
  const Shape shape = x.shape();
  if (shape.rank() < 1 || groups < 1 || shape[-1] % groups != 0)
    throw ShapeError(fmt::format("channel_shuffle: {} groups of an input {}", groups, to_string(shape)));
  if (shape.elements() == 0) return x;
  Tensor y = context.allocate(shape, x.dtype());
  if (!context.output_unused()) shuffle(context, groups, x, y);
  return record_unary(context, x, std::move(y), [=](const Context& ctx, const Tensor& dy, const Tensor& dx) {
    shuffle(ctx, shape[-1] / groups, dy, dx);
  });
}

}  // namespace bantam::ops
