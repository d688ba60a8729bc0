// Depthwise convolution between two batch norms as one op: backward keeps x, the convolution's result and four vectors.
// Then which layers become it.
#include "bantam/kernels/depthwise/norm_depthwise.h"

#include <string>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/gradient_operands.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/engine/fusion/fused_ops.h"
#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/fusion/match.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/layers/bound_norm.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/ops/batch_norm.h"
#include "bantam/engine/ops/depthwise_conv2d.h"
#include "bantam/engine/ops/norm_targets.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/depthwise/norm_depthwise_parts.h"
#include "bantam/kernels/pointwise/pointwise_norm.h"

namespace bantam::ops {
namespace {

/// One call's shapes, weights and norms.
struct Call {
  kernels::DepthwiseConv2dShape shape;
  DType dtype;
  Tensor w;
  Norm before, after;
  bool defers_gradient = false;  ///< the backward of x's op computes the first norm's input gradient as it reads

  Scratch scratch(const Context& context) const {
    return context.scratch(kernels::norm_depthwise_workspace_bytes(shape, dtype, context.device.kind));
  }
};

kernels::DepthwiseConv2dShape checked_shape(const Tensor& x, const Tensor& w, Window2d window, const Norm& before,
                                            const Norm& after) {
  const kernels::DepthwiseConv2dShape shape = depthwise_conv2d_shape("norm_depthwise", x, w, window);
  if (w.shape() != Shape{3, 3, shape.channels} ||
      !kernels::norm_depthwise_supports(shape, before.activation, after.activation))
    throw ShapeError(fmt::format("norm_depthwise: x {}, weight {}: not a convolution that runs between its norms",
                                 to_string(x.shape()), to_string(w.shape())));
  return shape;
}

/// Where a kernel writes the statistics of `batch`, which is `norm` over this batch.
kernels::StatisticsOutput output_of(const Context& context, const Norm& norm, const Norm& batch) {
  return norm.statistics_output(context, batch.mean, batch.inv_std);
}

/// The convolution's result. In a recompute the second norm's statistics are written once more, with the same bits.
Tensor convolve(const Context& context, const Call& call, const Tensor& x, const Norm& after) {
  const kernels::DepthwiseConv2dShape& s = call.shape;
  Tensor y = context.allocate({s.batch, s.out_h(), s.out_w(), s.channels}, call.dtype);
  const Scratch scratch = call.scratch(context);
  BANTAM_KERNEL(context.exec, norm_depthwise_forward, s, call.dtype, call.before.operand(x), call.w.data(), y.data(),
                output_of(context, after, call.after), scratch.get());
  return y;
}

/// y's memory, with the second norm deferred to its reader, which keeps y where there is a tape, also if nothing before
/// it is recorded.
Tensor deferred(const Context& context, const Call& call, const Tensor& y) {
  Tensor out = y.view(y.shape());
  set_deferred_norm(out, {context.tape != nullptr ? SavedTensor(y) : SavedTensor(), call.after});
  return out;
}

Tensor normalise(const Context& context, const Call& call, const Tensor& y) {
  Tensor out = context.allocate(y.shape(), y.dtype());
  const kernels::NormOperand norm = call.after.operand(y);
  BANTAM_KERNEL(context.exec, batch_norm_apply, norm_after(call.shape), call.dtype, norm.x, norm.affine, norm.mean,
                norm.inv_std, out.data());
  return out;
}

kernels::VectorGradients vectors(const NormTargets& to) { return {to.scale.data, to.shift.data, to.accumulate()}; }

void backward(const Context& context, const Call& call, SavedTensor& saved, Tensor& y, const Tensor& dy,
              GradientStore& store) {
  NormTargets after(context, "norm_depthwise", call.after, store);
  FloatGradient weight(context, call.w, store);
  NormTargets before(context, "norm_depthwise", call.before, store);
  Tensor dx = context.allocate(saved.shape(), call.dtype);
  const bool defers = call.defers_gradient && store.comes_next(saved.ref());
  const Tensor totals = defers ? context.allocate({2, call.shape.channels}, DType::float32) : Tensor();
  Tensor x = saved.unpack(context);
  {
    const Scratch scratch = call.scratch(context);
    const kernels::NormDepthwiseInputs inputs{
        .x = call.before.operand(x), .w = call.w.data(), .y = call.after.operand(y), .dy = dy.data()};
    const kernels::NormDepthwiseGradients gradients{.dx = dx.data(),
                                                    .dw = weight.data,
                                                    .accumulate = weight.accumulate,
                                                    .before = vectors(before),
                                                    .after = vectors(after),
                                                    .totals = defers ? totals.as<float>() : nullptr};
    BANTAM_KERNEL(context.exec, norm_depthwise_backward, call.shape, call.dtype, inputs, gradients, scratch.get());
  }
  y = Tensor();
  if (!defers) x = Tensor();
  after.add_to(context, store);
  weight.add_to(context, call.w, store);
  before.add_to(context, store);
  const Norm& norm = call.before;
  if (defers)
    store.add(context, saved.ref(), Gradient(std::move(dx), {std::move(x), norm, totals}));
  else
    store.add(context, saved.ref(), std::move(dx));
}

}  // namespace

Tensor norm_depthwise(const Context& context, const Tensor& x, const Norm& before, const Tensor& w,
                      const Window2d& window, const Norm& after) {
  const kernels::DepthwiseConv2dShape shape = checked_shape(x, w, window, before, after);
  if (context.pass == Pass::evaluate)
    return batch_norm(context, depthwise_conv2d(context, batch_norm(context, x, before), w, window), after);
  context.check_device("norm_depthwise", {&x, &w});
  const BatchStatistics* known = statistics_of(x);
  const Call call{shape,
                  x.dtype(),
                  w,
                  norm_of_batch(context, before, shape.channels, known),
                  norm_of_batch(context, after, shape.channels),
                  known != nullptr && known->computes_norm_gradient};
  measure_norm(context, x, before, call.before);
  const Tensor y = convolve(context, call, x, after);
  const bool recorded = records(context, {&x, &w, &before.scale, &before.shift, &after.scale, &after.shift});
  const bool defers = context.plan().defers_norm;
  Tensor out = defers ? deferred(context, call, y) : normalise(context, call, y);
  if (!recorded) return out;
  context.tape->record(context, out,
                       [=, x = SavedTensor(x), y = y](const Context& ctx, Tensor dy, GradientStore& store) mutable {
                         backward(ctx, call, x, y, dy, store);
                       });
  if (defers) return out;
  const SavedTensor kept(y);
  attach_recipe(context, out, {&kept}, [=](const Context& ctx) { return normalise(ctx, call, kept.get(ctx)); });
  return out;
}

}  // namespace bantam::ops

namespace bantam::fusion {
namespace {

NodeId match(const Graph& graph, NodeId first, const FusionTarget&) {
  const auto* before = options_at<BatchNormOptions>(graph, first);
  const auto* middle = options_at<DepthwiseConv2dOptions>(graph, first + 1);
  const auto* after = options_at<BatchNormOptions>(graph, first + 2);
  if (before == nullptr || middle == nullptr || after == nullptr) return 0;
  if (middle->bias || middle->activation.kind != Activation::none) return 0;
  const Shape& in = graph.node(first).output;
  if (in.rank() != 3) return 0;
  const kernels::DepthwiseConv2dShape shape =
      ops::depthwise_conv2d_shape("depthwise_conv2d", in.prepend(1), middle->multiplier, window_of(*middle));
  return kernels::norm_depthwise_supports(shape, activation_of(*before), activation_of(*after)) ? first + 2 : 0;
}

/// The op, over its three nodes' parameters.
class NormDepthwiseLayer : public BoundLayer, public NormSource {
 public:
  NormDepthwiseLayer(const Graph& graph, NodeId first, ParameterArena& parameters, BufferArena& buffers)
      : before_(norm_at(graph, first, parameters, buffers)),
        weight_(*parameters.find(graph.node(first + 1).name + "/weight")),
        window_(window_of(*options_at<DepthwiseConv2dOptions>(graph, first + 1))),
        after_(norm_at(graph, first + 2, parameters, buffers)) {}

  Tensor forward(const Context& context, std::span<Tensor> inputs) override {
    const Tensor x = std::move(inputs[0]);
    return ops::norm_depthwise(context, x, before_.norm(), weight_.value(), window_, after_.norm());
  }
  Norm norm() const override { return before_.norm(); }

 private:
  BoundNorm before_;
  Parameter& weight_;
  Window2d window_;
  BoundNorm after_;
};

std::unique_ptr<BoundLayer> bind(const Graph& graph, const Fusion& fusion, ParameterArena& parameters,
                                 BufferArena& buffers) {
  return std::make_unique<NormDepthwiseLayer>(graph, fusion.first, parameters, buffers);
}

/// Whether the next node, a pointwise convolution, alone reads it, and applies the second norm as its GEMM reads.
bool defers_norm(const Graph& graph, const Fusion& fusion, const FusionTarget& target) {
  const NodeId reader = graph.only_reader(fusion.last);
  if (target.device != DeviceKind::cuda || reader != fusion.last + 1) return false;
  const GraphNode& node = graph.node(reader);
  const auto* product = node.layer->options<Conv2dOptions>();
  if (product == nullptr || product->groups != 1 || product->kernel != Extent2d{1, 1} ||
      product->stride != Extent2d{1, 1})
    return false;
  const Shape& in = graph.node(fusion.last).output;
  const Padding pad = window_of(*product).resolve("conv2d", in[0], in[1]);
  return pad.top + pad.bottom + pad.left + pad.right == 0 &&
         kernels::pointwise_norm_supports({in[0] * in[1], in[2], product->filters}, target.compute,
                                          activation_of(*options_at<BatchNormOptions>(graph, fusion.last)));
}

}  // namespace

/// batch_norm, depthwise_conv2d without bias and activation, batch_norm, both norms with relu or relu6.
extern const FusionPattern kNormDepthwise{
    .name = "norm_depthwise", .match = match, .bind = bind, .defers_norm = defers_norm};

}  // namespace bantam::fusion
