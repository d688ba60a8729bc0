// Pointwise convolution after a deferred norm: backward keeps the norm's input and what it needs to apply it.
#include "bantam/engine/ops/pointwise_norm.h"

#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/gradient_operands.h"
#include "bantam/engine/autograd/gradient_target.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/engine/ops/statistics_after.h"
#include "bantam/kernels/pointwise/pointwise_norm.h"

namespace bantam::ops {
namespace {

/// One call's shape, weight and norm.
struct Call {
  kernels::PointwiseShape shape;
  DType dtype;
  Tensor w;
  Norm norm;

  Scratch scratch(const Context& context) const {
    return context.scratch(kernels::pointwise_norm_workspace_bytes(shape, dtype, context.device.kind));
  }
};

Call checked_call(const Tensor& x, const Norm& norm, const Tensor& w) {
  const Shape& in = x.shape();
  if (in.rank() != 4 || w.shape() != Shape{w.shape()[0], 1, 1, in[3]} ||
      !kernels::pointwise_norm_supports({in[0] * in[1] * in[2], in[3], w.shape()[0]}, x.dtype(), norm.activation))
    throw ShapeError(fmt::format("pointwise_norm: x {}, weight {}: not a convolution that applies a norm as it reads",
                                 to_string(in), to_string(w.shape())));
  return {{in[0] * in[1] * in[2], in[3], w.shape()[0]}, x.dtype(), w, norm};
}

void backward(const Context& context, const Call& call, SavedTensor& saved, const ValueRef& x, const Shape& shape,
              Gradient dy, GradientStore& store) {
  const Gradient::NormInput after =
      dy.of_norm() && !dy.shared() ? std::exchange(dy.operands().norm, {}) : Gradient::NormInput{};
  const Tensor dz = std::move(dy).tensor(context);
  const kernels::NormInputGradient from =
      after.x.defined() ? after.from(dz) : kernels::NormInputGradient{.dz = dz.data()};
  FloatGradient weight(context, call.w, store);
  Tensor da = wants_gradient(x) ? context.allocate(shape, call.dtype) : Tensor();
  {
    const Tensor memory = saved.unpack(context);
    const Scratch scratch = call.scratch(context);
    BANTAM_KERNEL(
        context.exec, pointwise_norm_backward, call.shape, call.dtype, call.norm.operand(memory), call.w.data(), from,
        kernels::PointwiseGradients{da.defined() ? da.data() : nullptr, weight.data, weight.accumulate}, scratch.get());
  }
  weight.add_to(context, call.w, store);
  if (da.defined()) store.add(context, x, std::move(da));
}

}  // namespace

Tensor pointwise_norm(const Context& context, const Tensor& x, const Tensor& w) {
  const DeferredNorm* deferred = deferred_norm_of(x);
  if (deferred == nullptr) throw Error("pointwise_norm: x has no deferred norm");
  const Call call = checked_call(x, deferred->norm, w);
  context.check_device("pointwise_norm", {&x, &w});
  Tensor y = context.allocate({x.shape()[0], x.shape()[1], x.shape()[2], call.shape.out}, call.dtype);
  StatisticsAfter statistics(context, call.shape.out);
  {
    const Scratch scratch = call.scratch(context);
    BANTAM_KERNEL(context.exec, pointwise_norm_forward, call.shape, call.dtype, call.norm.operand(x), w.data(),
                  y.data(), statistics.output(), scratch.get());
  }
  statistics.attach(y, kernels::pointwise_norm_supports_gradient(call.shape, call.dtype));
  if (!records(context, {&x, &w})) return y;
  context.tape->record_deferred(context, y,
                                [call, saved = deferred->input, ref = ValueRef(x), shape = x.shape()](
                                    const Context& ctx, Gradient dy, GradientStore& store) mutable {
                                  backward(ctx, call, saved, ref, shape, std::move(dy), store);
                                });
  return y;
}

}  // namespace bantam::ops
