// Depthwise convolution between two batch norms: backward keeps x, the convolution's result and four vectors.
#include "bantam/engine/ops/norm_depthwise.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/batch_statistics.h"
#include "bantam/engine/autograd/pending_norm.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/ops/depthwise_conv2d.h"
#include "bantam/engine/autograd/gradient_target.h"
#include "bantam/kernels/contracts/depthwise/norm_depthwise.h"
#include "bantam/kernels/tiling/depthwise/norm_depthwise_parts.h"

namespace bantam::ops {
namespace {

const float* floats(const Tensor& tensor) { return tensor.defined() ? tensor.as<float>() : nullptr; }
float* moving(const Context& context, const Tensor& pending) {
  return context.pass == Pass::train && pending.defined() ? pending.as<float>() : nullptr;
}

/// A norm with its batch's statistics, as backward and recipes need it.
struct Norm {
  Tensor scale, shift, mean, inv_std;
  kernels::ActivationFunction activation;

  kernels::NormOperand operand(const Tensor& x) const {
    return {.x = x.data(),
            .affine = {floats(scale), floats(shift), activation},
            .mean = mean.as<float>(),
            .inv_std = inv_std.as<float>()};
  }
};

/// One call's shapes, weights and norms.
struct Call {
  kernels::DepthwiseConv2dShape shape;
  DType dtype;
  Tensor w;
  Norm before, behind;
  bool leaves_gradient = false;  ///< x's op makes the first norm's input gradient as its backward reads

  Scratch scratch(const Context& context) const {
    return context.scratch(kernels::norm_depthwise_workspace_bytes(shape, dtype, context.device.kind));
  }
};

kernels::DepthwiseConv2dShape checked_shape(const Tensor& x, const Tensor& w, Window2d window, const NormStage& before,
                                            const NormStage& behind) {
  const kernels::DepthwiseConv2dShape shape = depthwise_conv2d_shape("norm_depthwise", x, w, window);
  if (w.shape() != Shape{3, 3, shape.channels} ||
      !kernels::norm_depthwise_takes(shape, before.settings.activation, behind.settings.activation))
    throw ShapeError(fmt::format("norm_depthwise: x {}, weight {}: not a convolution that runs between its norms",
                                 to_string(x.shape()), to_string(w.shape())));
  return shape;
}

/// `known`: statistics that are there already, or null.
Norm norm_of(const Context& context, const NormStage& stage, std::int64_t channels,
             const BatchStatistics* known = nullptr) {
  Norm norm{stage.tensors.scale, stage.tensors.shift, {}, {}, stage.settings.activation};
  if (context.keepsakes != nullptr && context.keepsakes->replaying()) {
    norm.mean = context.keepsakes->take();
    norm.inv_std = context.keepsakes->take();
    return norm;
  }
  for (Tensor* vector : {&norm.mean, &norm.inv_std}) {
    *vector = known == nullptr       ? context.allocate({channels}, DType::float32)
              : vector == &norm.mean ? known->mean
                                     : known->inv_std;
    if (context.keepsakes != nullptr) context.keepsakes->leave(*vector);
  }
  return norm;
}

/// Where the statistics of `norm`, which is `stage`'s, go.
kernels::StatisticsOutput output_of(const Context& context, const NormStage& stage, const Norm& norm) {
  return {.epsilon = stage.settings.epsilon,
          .update = stage.settings.running,
          .running_mean = moving(context, stage.tensors.pending_mean),
          .running_variance = moving(context, stage.tensors.pending_variance),
          .mean = norm.mean.as<float>(),
          .inv_std = norm.inv_std.as<float>()};
}

/// The first norm's statistics, unless x has them, or the first pass left them.
void measure(const Context& context, const Call& call, const Tensor& x, const NormStage& stage) {
  if (x.statistics() != nullptr || (context.keepsakes != nullptr && context.keepsakes->replaying())) return;
  const Scratch scratch = call.scratch(context);
  BANTAM_KERNEL(context.exec, batch_norm_forward_training, norm_before(call.shape), call.dtype, x.data(), {}, nullptr,
                output_of(context, stage, call.before), scratch.get());
}

/// The convolution's result. Where a stretch runs again, the second norm's statistics are written once more, with the
/// same bits.
Tensor convolve(const Context& context, const Call& call, const Tensor& x, const NormStage& behind) {
  const kernels::DepthwiseConv2dShape& s = call.shape;
  Tensor y = context.allocate({s.batch, s.out_h(), s.out_w(), s.channels}, call.dtype);
  const Scratch scratch = call.scratch(context);
  BANTAM_KERNEL(context.exec, norm_depthwise_forward, s, call.dtype, call.before.operand(x), call.w.data(), y.data(),
                output_of(context, behind, call.behind), scratch.get());
  return y;
}

/// y's memory, with the second norm pending on it. Its reader keeps y where there is a tape, also if nothing before it
/// is recorded.
Tensor left_to_reader(const Context& context, const Call& call, const Tensor& y) {
  Tensor out = y.view(y.shape());
  const Norm& norm = call.behind;
  out.set_pending(
      std::make_shared<PendingNorm>(PendingNorm{context.tape != nullptr ? SavedTensor(y) : SavedTensor(), norm.scale,
                                                norm.shift, norm.mean, norm.inv_std, norm.activation}));
  return out;
}

Tensor normalise(const Context& context, const Call& call, const Tensor& y) {
  Tensor out = context.allocate(y.shape(), y.dtype());
  const kernels::NormOperand norm = call.behind.operand(y);
  BANTAM_KERNEL(context.exec, batch_norm_apply, norm_behind(call.shape), call.dtype, norm.x, norm.affine, norm.mean,
                norm.inv_std, out.data());
  return out;
}

/// Where the gradients of a norm's scale and shift go.
struct NormTargets {
  FloatGradient scale, shift;
  NormTargets(const Context& context, const Norm& norm, GradientStore& store)
      : scale(context, norm.scale, store), shift(context, norm.shift, store) {
    if (scale.data != nullptr && shift.data != nullptr && scale.accumulate != shift.accumulate)
      throw Error("norm_depthwise: scale and shift must be used together");
  }
  kernels::VectorGradients get() const { return {scale.data, shift.data, scale.accumulate || shift.accumulate}; }
  void hand_on(const Context& context, const Norm& norm, GradientStore& store) {
    scale.hand_on(context, norm.scale, store);
    shift.hand_on(context, norm.shift, store);
  }
};

void backward(const Context& context, const Call& call, SavedTensor& saved, Tensor& y, const Tensor& dy,
              GradientStore& store) {
  NormTargets behind(context, call.behind, store);
  FloatGradient weight(context, call.w, store);
  NormTargets before(context, call.before, store);
  Tensor dx = context.allocate(saved.shape(), call.dtype);
  const bool leaves = call.leaves_gradient && store.comes_next(saved.ref());
  const Tensor totals = leaves ? context.allocate({2, call.shape.channels}, DType::float32) : Tensor();
  Tensor x = saved.take(context);
  {
    const Scratch scratch = call.scratch(context);
    const kernels::NormDepthwiseInputs inputs{
        .x = call.before.operand(x), .w = call.w.data(), .y = call.behind.operand(y), .dy = dy.data()};
    const kernels::NormDepthwiseGradients gradients{.dx = dx.data(),
                                                    .dw = weight.data,
                                                    .accumulate = weight.accumulate,
                                                    .before = before.get(),
                                                    .after = behind.get(),
                                                    .totals = leaves ? totals.as<float>() : nullptr};
    BANTAM_KERNEL(context.exec, norm_depthwise_backward, call.shape, call.dtype, inputs, gradients, scratch.get());
  }
  y = Tensor();
  if (!leaves) x = Tensor();
  behind.hand_on(context, call.behind, store);
  weight.hand_on(context, call.w, store);
  before.hand_on(context, call.before, store);
  const Norm& norm = call.before;
  if (leaves)
    store.add(context, saved.ref(),
              Gradient(std::move(dx), {std::move(x), norm.scale, norm.mean, norm.inv_std, totals}));
  else
    store.add(context, saved.ref(), std::move(dx));
}

}  // namespace

Tensor norm_depthwise(const Context& context, const Tensor& x, const NormStage& before, const Tensor& w,
                      const Window2d& window, const NormStage& behind) {
  const kernels::DepthwiseConv2dShape shape = checked_shape(x, w, window, before, behind);
  if (context.pass == Pass::evaluate)
    return batch_norm(context,
                      depthwise_conv2d(context, batch_norm(context, x, before.tensors, before.settings), w, window),
                      behind.tensors, behind.settings);
  context.check_device("norm_depthwise", {&x, &w});
  const Call call{shape,
                  x.dtype(),
                  w,
                  norm_of(context, before, shape.channels, x.statistics().get()),
                  norm_of(context, behind, shape.channels),
                  x.statistics() != nullptr && x.statistics()->makes_gradient};
  measure(context, call, x, before);
  const Tensor y = convolve(context, call, x, behind);
  const bool recorded = records(
      context, {&x, &w, &before.tensors.scale, &before.tensors.shift, &behind.tensors.scale, &behind.tensors.shift});
  Tensor out = context.defer ? left_to_reader(context, call, y) : normalise(context, call, y);
  if (!recorded) return out;
  context.tape->record(context, out,
                       [=, x = SavedTensor(x), y = y](const Context& ctx, Tensor dy, GradientStore& store) mutable {
                         backward(ctx, call, x, y, dy, store);
                       });
  if (context.defer) return out;
  const SavedTensor kept(y);
  attach_recipe(context, out, {&kept}, [=](const Context& ctx) { return normalise(ctx, call, kept.get(ctx)); });
  return out;
}

}  // namespace bantam::ops
