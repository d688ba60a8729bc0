// Attention: backward keeps qkv, o and the sums of the rows of scores, never the scores.
#include "bantam/kernels/attention/attention.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/ops/ops.h"

namespace bantam::ops {
namespace {

kernels::AttentionShape shape_of(const Shape& qkv, std::int64_t heads) {
  if (qkv.rank() < 3 || heads < 1 || qkv[-1] % (3 * heads) != 0)
    throw ShapeError(fmt::format("attention: expected (batch, …, 3 · {} heads · size), got {}", heads, to_string(qkv)));
  kernels::AttentionShape shape{.batch = qkv[0], .tokens = 1, .heads = heads, .size = qkv[-1] / 3 / heads};
  for (int axis = 1; axis + 1 < qkv.rank(); ++axis) shape.tokens *= qkv[axis];
  kernels::check_attention_shape(shape);
  shape.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.size)));
  return shape;
}

}  // namespace

Tensor attention(const Context& context, const Tensor& qkv, std::int64_t heads) {
  context.check_device("attention", {&qkv});
  const kernels::AttentionShape shape = shape_of(qkv.shape(), heads);
  const bool recorded = records(context, {&qkv});
  Tensor o = context.allocate(qkv.shape().with(-1, shape.channels()), qkv.dtype());
  Tensor lse;
  if (recorded) lse = context.allocate({shape.batch, shape.heads, shape.tokens}, DType::float32);
  {
    const Scratch scratch =
        context.scratch(kernels::attention_workspace_bytes(shape, qkv.dtype(), context.device.kind));
    BANTAM_KERNEL(context.exec, attention_forward, shape, qkv.dtype(), qkv.data(), o.data(),
                  recorded ? lse.as<float>() : nullptr, scratch.get());
  }
  if (!recorded) return o;
  context.tape->record(context, o,
                       [shape, lse, input = SavedTensor(qkv), output = SavedTensor(o)](
                           const Context& ctx, const Tensor& dout, GradientStore& store) mutable {
                         Tensor dqkv = ctx.allocate(input.shape(), input.dtype());
                         {
                           const Tensor in = input.unpack(ctx), out = output.unpack(ctx);
                           const Scratch scratch = ctx.scratch(
                               kernels::attention_backward_workspace_bytes(shape, in.dtype(), ctx.device.kind));
                           BANTAM_KERNEL(ctx.exec, attention_backward, shape, in.dtype(),
                                         {.qkv = in.data(), .o = out.data(), .lse = lse.as<float>()}, dout.data(),
                                         dqkv.data(), scratch.get());
                         }
                         store.add(ctx, input.ref(), std::move(dqkv));
                       });
  return o;
}

}  // namespace bantam::ops
