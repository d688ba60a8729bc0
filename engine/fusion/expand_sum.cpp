// A residual block's end, from the norm before its expanding 1x1 convolution to the sum, as one op by algebra: backward
// keeps the convolution's narrow input, and nothing as wide as its output but a bit an element. Then which layers
// become it.
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/gradient_operands.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/engine/fusion/fused_ops.h"
#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/fusion/match.h"
#include "bantam/engine/ops/batch_norm.h"
#include "bantam/engine/ops/masked_activation.h"
#include "bantam/engine/ops/norm_targets.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/elementwise/masked_activation.h"
#include "bantam/kernels/expand/expand.h"

namespace bantam::ops {
namespace {

constexpr ActivationFunction kRelu{Activation::relu};

/// One call's shape, weight and norms, and what forward computed for backward.
struct Call {
  kernels::ExpandShape shape;
  DType dtype;
  Tensor w;
  Norm before, after;     ///< with the batch's statistics; the second's mean is that of the shifted convolution
  Tensor mean, products;  ///< (C) and (C_out, C) float32: kernels::ExpandMoments::mean, covariance times w

  Scratch scratch(const Context& context) const {
    return context.scratch(kernels::expand_workspace_bytes(shape, dtype, context.device.kind));
  }
  kernels::NormOperand product(const Tensor& centred) const { return after.operand(centred); }
};

kernels::ExpandShape checked_shape(const Tensor& x, const ExpandSumOperands& operands, const Tensor& residual) {
  const Shape &in = x.shape(), &w = operands.w.shape();
  const auto misfit = [&] {
    return ShapeError(
        fmt::format("expand_sum: x {}, weight {}, residual {}: not a 1x1 convolution that runs by algebra",
                    to_string(in), to_string(w), to_string(residual.shape())));
  };
  if (in.rank() != 4 || w.rank() != 4 || w != Shape{w[0], 1, 1, in[3]} || residual.shape() != in.with(-1, w[0]))
    throw misfit();
  const kernels::ExpandShape shape{x.elements() / in[3], in[3], w[0]};
  if (!kernels::expand_supports(shape, x.dtype(), operands.before.activation, kRelu)) throw misfit();
  if (x.dtype() != operands.w.dtype() || x.dtype() != residual.dtype())
    throw DTypeError(fmt::format("expand_sum: x is {}, the weight {} and the residual {}", to_string(x.dtype()),
                                 to_string(operands.w.dtype()), to_string(residual.dtype())));
  return shape;
}

/// The shifted input of the convolution, without its moments: what a recompute and recipes need.
Tensor centre(const Context& context, const Call& call, const Tensor& x, const kernels::ExpandMoments& moments = {}) {
  Tensor centred = context.allocate(x.shape(), x.dtype());
  const Scratch scratch = call.scratch(context);
  BANTAM_KERNEL(context.exec, expand_centre, call.shape, call.dtype, call.before.operand(x), centred.data(), moments,
                scratch.get());
  return centred;
}

/// The shifted input, and with it `call`'s statistics: those of the first pass where a segment is recomputed.
Tensor centre_with_statistics(const Context& context, Call& call, const Tensor& x, const Norm& after) {
  SavedStatistics* saved = context.step.saved;
  const kernels::ExpandShape& s = call.shape;
  if (context.replays()) {
    call.mean = saved->next();
    call.products = saved->next();
    call.after = norm_of_batch(context, after, s.out);
    return centre(context, call, x);
  }
  call.mean = context.allocate({s.in}, DType::float32);
  call.products = context.allocate({s.out, s.in}, DType::float32);
  if (saved != nullptr)
    for (const Tensor& tensor : {call.mean, call.products}) saved->save(tensor);
  call.after = norm_of_batch(context, after, s.out);
  const Tensor covariance = context.allocate({s.in, s.in}, DType::float32);
  const kernels::ExpandMoments moments{call.mean.as<float>(), covariance.as<float>()};
  Tensor centred = centre(context, call, x, moments);
  const Scratch scratch = call.scratch(context);
  BANTAM_KERNEL(context.exec, expand_statistics, s, call.dtype, call.w.data(), moments, call.before.affine(),
                after.statistics_output(context, call.after.mean, call.after.inv_std), call.products.as<float>(),
                scratch.get());
  return centred;
}

void sum(const Context& context, const Call& call, const Tensor& centred, const Tensor& residual, const Tensor& y,
         const Tensor& mask) {
  const Scratch scratch = call.scratch(context);
  BANTAM_KERNEL(context.exec, expand_sum, call.shape, call.dtype, call.product(centred), call.w.data(),
                operand_of(residual), y.data(), mask.defined() ? mask.as<std::uint8_t>() : nullptr, scratch.get());
}

/// dz, the gradient of the sum before its relu, and its sums over rows, from the gradient's operands; in the memory of
/// one that nobody else owns.
Tensor masked_gradient(const Context& context, const Call& call, Gradient dy, const Tensor& mask, const Tensor& sums) {
  if (dy.of_norm() || dy.operands().mask.defined()) dy = Gradient(std::move(dy).tensor(context));
  Tensor value = dy.operands().value, other = dy.operands().other;
  if (!dy.shared()) dy.operands().value = dy.operands().other = Tensor();
  const bool swap = !value.sole_owner() && other.defined() && other.sole_owner();
  const Tensor dz = reuse_or_allocate(context, swap ? other : value);
  const kernels::BatchNormShape shape{call.shape.rows, call.shape.out};
  const Scratch scratch = context.scratch(kernels::batch_norm_workspace_bytes(shape, call.dtype, context.device.kind));
  BANTAM_KERNEL(
      context.exec, sum_gradient_totals, shape, call.dtype,
      kernels::SumGradient{value.data(), other.defined() ? other.data() : nullptr, mask.as<std::uint8_t>(), kRelu},
      dz.data(), sums.as<float>(), scratch.get());
  return dz.view(dz.shape());
}

/// What backward keeps.
struct Kept {
  SavedTensor x, centred;
  Tensor mask;
  ValueRef residual;
};

void backward(const Context& context, const Call& call, Kept& kept, Gradient dy, GradientStore& store) {
  Tensor sums = dy.operands().sums, dz;
  if (sums.defined()) {
    dz = std::move(dy.operands().value);
    dy = Gradient();
  } else {
    sums = context.allocate({call.shape.out}, DType::float32);
    dz = masked_gradient(context, call, std::move(dy), kept.mask, sums);
  }
  kept.mask = Tensor();
  NormTargets after(context, "expand_sum", call.after, store), before(context, "expand_sum", call.before, store);
  FloatGradient weight(context, call.w, store);
  const Tensor totals = context.allocate({2, call.shape.in}, DType::float32);
  Tensor x = kept.x.unpack(context), dx = context.allocate(x.shape(), x.dtype());
  {
    const Tensor centred = kept.centred.unpack(context);
    const Scratch scratch = call.scratch(context);
    BANTAM_KERNEL(context.exec, expand_backward, call.shape, call.dtype,
                  kernels::ExpandInputs{.x = call.before.operand(x),
                                        .product = call.product(centred),
                                        .w = call.w.data(),
                                        .moments = {call.mean.as<float>(), nullptr},
                                        .products = call.products.as<float>(),
                                        .dz = dz.data(),
                                        .dz_sums = sums.as<float>()},
                  kernels::ExpandGradients{.dw = weight.data,
                                           .dscale = after.scale.data,
                                           .dshift = after.shift.data,
                                           .dscale_before = before.scale.data,
                                           .dshift_before = before.shift.data,
                                           .accumulate_w = weight.accumulate,
                                           .accumulate_after = after.accumulate(),
                                           .accumulate_before = before.accumulate(),
                                           .dz_before = dx.data(),
                                           .totals = totals.as<float>()},
                  scratch.get());
  }
  weight.add_to(context, call.w, store);
  after.add_to(context, store);
  before.add_to(context, store);
  if (wants_gradient(kept.residual)) store.add(context, kept.residual, dz);
  if (!wants_gradient(kept.x.ref())) return;
  Gradient gradient(std::move(dx), {std::move(x), call.before, totals});
  if (!store.comes_next(kept.x.ref())) gradient = std::move(gradient).tensor(context);
  store.add(context, kept.x.ref(), std::move(gradient));
}

}  // namespace

Tensor expand_sum(const Context& context, const Tensor& x, const ExpandSumOperands& operands, Tensor residual) {
  const kernels::ExpandShape shape = checked_shape(x, operands, residual);
  context.check_device("expand_sum", {&x, &operands.w, &residual});
  Call call{shape, x.dtype(), operands.w, norm_of_batch(context, operands.before, shape.in, statistics_of(x)),
            {},    {},        {}};
  measure_norm(context, x, operands.before, call.before);
  Tensor centred = centre_with_statistics(context, call, x, operands.after);
  const Norm &before = operands.before, &after = operands.after;
  const bool recorded =
      records(context, {&x, &residual, &call.w, &before.scale, &before.shift, &after.scale, &after.shift});
  const SavedTensor x_saved = recorded ? SavedTensor(x) : SavedTensor();
  if (recorded)
    attach_recipe(context, centred, {&x_saved},
                  [=](const Context& ctx) { return centre(ctx, call, x_saved.get(ctx)); });
  const bool derived = recorded && derives(context, 2) && kept_anyway(residual);
  const SavedOperand residual_saved = derived ? SavedOperand(residual) : SavedOperand();
  // At the end of a checkpoint segment the first pass saves the mask, and the recompute writes no output.
  SavedStatistics* saved = context.plan().ends_segment ? context.step.saved : nullptr;
  Tensor y, mask;
  if (context.output_unused()) {
    y = residual.view(residual.shape());
    mask = saved->next();
  } else {
    y = reuse_or_allocate(context, residual);
    if (recorded || saved != nullptr) mask = allocate_mask(context, y.elements());
    sum(context, call, centred, residual, y, mask);
    if (saved != nullptr) saved->save(mask);
  }
  set_sum_activation(y, {mask});
  if (!recorded) return y;
  const SavedTensor centred_saved(centred);
  context.tape->record_deferred(context, y,
                                [=, kept = Kept{x_saved, centred_saved, mask, ValueRef(residual)}](
                                    const Context& ctx, Gradient dy, GradientStore& store) mutable {
                                  backward(ctx, call, kept, std::move(dy), store);
                                });
  if (derived)
    attach_recipe(context, y, {&centred_saved, &residual_saved.memory}, [=](const Context& ctx) {
      const Tensor narrow = centred_saved.get(ctx), wide = residual_saved.get(ctx);
      Tensor rebuilt = ctx.allocate(wide.shape(), wide.dtype());
      sum(ctx, call, narrow, wide, rebuilt, Tensor());
      return rebuilt;
    });
  return y;
}

}  // namespace bantam::ops

namespace bantam::fusion {
namespace {

/// The nodes of a match: norm, convolution, norm; a convolution and its norm beside them, or none (0); the sum.
struct Region {
  NodeId before, expand, after, shortcut, shortcut_norm, sum;
};

/// A norm of batch statistics that only `reader` reads.
bool is_norm(const Graph& graph, NodeId node, Activation activation, NodeId input) {
  const auto* norm = options_at<BatchNormOptions>(graph, node);
  return norm != nullptr && norm->activation.kind == activation && graph.node(node).inputs[0] == input;
}

/// A convolution without bias and activation.
const Conv2dOptions* plain_convolution(const Graph& graph, NodeId node) {
  const auto* convolution = options_at<Conv2dOptions>(graph, node);
  return convolution != nullptr && !convolution->bias && convolution->activation.kind == Activation::none &&
                 convolution->padding_mode == ops::PaddingMode::zeros
             ? convolution
             : nullptr;
}

/// The sum of `a` and `b`, in either order, with relu.
bool is_sum(const Graph& graph, NodeId node, NodeId a, std::optional<NodeId> b) {
  if (node > graph.output() || graph.node(node).layer->kind() != "add") return false;
  const auto* activation = graph.node(node).layer->options<ActivationOptions>();
  const std::vector<NodeId>& inputs = graph.node(node).inputs;
  if (activation == nullptr || activation->kind != Activation::relu || inputs.size() != 2) return false;
  const NodeId other = inputs[0] == a ? inputs[1] : inputs[0];
  return (inputs[0] == a || inputs[1] == a) && (b ? other == *b : other < a - 2);
}

std::optional<Region> region_at(const Graph& graph, NodeId first) {
  const NodeId expand = first + 1, after = first + 2;
  if (options_at<BatchNormOptions>(graph, first) == nullptr ||
      options_at<BatchNormOptions>(graph, first)->activation.kind != Activation::relu)
    return std::nullopt;
  const Conv2dOptions* convolution = plain_convolution(graph, expand);
  if (convolution == nullptr || graph.node(expand).inputs[0] != first || convolution->groups != 1 ||
      convolution->kernel != Extent2d{1, 1} || convolution->stride != Extent2d{1, 1})
    return std::nullopt;
  const Shape& in = graph.node(first).output;
  if (in.rank() != 3 || window_of(*convolution).resolve("conv2d", in[0], in[1]) != ::bantam::Padding::symmetric(0))
    return std::nullopt;
  if (!is_norm(graph, after, Activation::none, expand)) return std::nullopt;
  if (is_sum(graph, after + 1, after, std::nullopt)) return Region{first, expand, after, 0, 0, after + 1};
  const NodeId shortcut = after + 1;
  if (plain_convolution(graph, shortcut) != nullptr && graph.node(shortcut).inputs[0] < first &&
      is_norm(graph, shortcut + 1, Activation::none, shortcut) && is_sum(graph, shortcut + 2, after, shortcut + 1))
    return Region{first, expand, after, shortcut, shortcut + 1, shortcut + 2};
  return std::nullopt;
}

NodeId match(const Graph& graph, NodeId first, const FusionTarget& target) {
  if (target.device != DeviceKind::cuda) return 0;
  const std::optional<Region> region = region_at(graph, first);
  if (!region) return 0;
  const Shape &in = graph.node(region->before).output, &out = graph.node(region->sum).output;
  constexpr std::int64_t kManyRows = std::int64_t{1} << 20;  // a batch decides when the op runs
  return kernels::expand_supports({kManyRows, in[2], out[2]}, target.compute, {Activation::relu}, {Activation::relu})
             ? region->sum
             : 0;
}

/// A convolution and the norm after it, as they run within the op.
struct ConvNorm {
  Parameter& weight;
  Window2d window;
  std::int64_t groups;
  BoundNorm norm;
  bool writes_statistics;  ///< the convolution's kernel computes the norm's statistics

  ConvNorm(const Graph& graph, NodeId node, const FusionTarget& target, ParameterArena& parameters,
           BufferArena& buffers)
      : weight(*parameters.find(graph.node(node).name + "/weight")),
        window(window_of(*options_at<Conv2dOptions>(graph, node))),
        groups(options_at<Conv2dOptions>(graph, node)->groups),
        norm(norm_at(graph, node + 1, parameters, buffers)),
        writes_statistics(norm_after_conv(graph, node, target) != 0) {}

  /// With the norm deferred to the sum. `rebuilt`: backward computes the convolution's output again.
  Tensor forward(const Context& context, const Tensor& x, bool rebuilt = false) const {
    NodePlan plan = context.plan();
    plan.ends_segment = false;
    if (writes_statistics) plan.norm_after = &norm;
    Context local = context;
    local.node = &plan;
    Tensor y = ops::conv2d(local, x, weight.value(), window, groups);
    if (rebuilt && context.tape != nullptr)
      set_recipe(y, std::make_shared<Recipe>(context.path, 2, [this, saved = SavedTensor(x)](const Context& ctx) {
                   return again(ctx, saved.get(ctx));
                 }));
    plan.norm_after = nullptr;
    plan.defers_norm = context.pass != Pass::evaluate;
    return ops::batch_norm(local, y, norm.norm());
  }

  /// The convolution's output, with the bits that come with the norm's statistics, which are known.
  Tensor again(const Context& context, const Tensor& x) const {
    NodePlan plan;
    if (writes_statistics) plan.norm_after = &norm;
    SavedStatistics none;
    none.replay();
    Context local = context;
    local.tape = nullptr;
    local.node = &plan;
    local.step.saved = &none;
    return ops::conv2d(local, x, weight.value(), window, groups);
  }
};

/// The op, over its nodes' parameters. Where an evaluation runs, or too few rows for the algebra to pay, the layers.
class ExpandSumLayer : public BoundLayer, public NormSource {
 public:
  ExpandSumLayer(const Graph& graph, const Region& region, ParameterArena& parameters, BufferArena& buffers)
      : before_(norm_at(graph, region.before, parameters, buffers)),
        expand_(graph, region.expand, kTarget, parameters, buffers) {
    if (region.shortcut != 0) shortcut_.emplace(graph, region.shortcut, kTarget, parameters, buffers);
  }

  Tensor forward(const Context& context, std::span<Tensor> inputs) override {
    const Tensor x = std::move(inputs[0]);
    Tensor residual = std::move(inputs[1]);
    if (shortcut_) residual = shortcut_->forward(context, residual, rebuilds_shortcut(residual));
    const Tensor w = expand_.weight.value();
    const std::int64_t channels = x.shape()[-1];
    const kernels::ExpandShape shape{x.elements() / channels, channels, w.shape()[0]};
    if (context.pass == Pass::evaluate || !kernels::expand_supports(shape, x.dtype(), before_.norm().activation, kRelu))
      return layers(context, x, std::move(residual));
    return ops::expand_sum(context, x, {before_.norm(), w, expand_.norm.norm()}, std::move(residual));
  }
  Norm norm() const override { return before_.norm(); }

 private:
  static constexpr ActivationFunction kRelu{Activation::relu};
  static constexpr FusionTarget kTarget{.compute = DType::float16, .device = DeviceKind::cuda};

  /// Whether the projection's output is as wide as that of the expanding convolution, and as cheap: from so few
  /// channels its GEMM takes no longer than a pass over it, so that backward computes it again instead of keeping it.
  bool rebuilds_shortcut(const Tensor& x) const {
    constexpr std::int64_t kFewChannels = 256;
    return shortcut_->window.kernel == Extent2d{1, 1} && x.shape()[-1] <= kFewChannels;
  }
  Tensor layers(const Context& context, const Tensor& x, Tensor residual) const {
    NodePlan plan = context.plan();
    plan.ends_segment = plan.defers_norm = false;
    Context local = context;
    local.node = &plan;
    Tensor y = expand_.forward(context, ops::batch_norm(local, x, before_.norm()));
    return ops::add(context, std::move(y), std::move(residual), kRelu);
  }

  BoundNorm before_;
  ConvNorm expand_;
  std::optional<ConvNorm> shortcut_;
};

std::unique_ptr<BoundLayer> bind(const Graph& graph, const Fusion& fusion, ParameterArena& parameters,
                                 BufferArena& buffers) {
  return std::make_unique<ExpandSumLayer>(graph, region_at(graph, fusion.first).value(), parameters, buffers);
}

}  // namespace

/// batch_norm with relu, a 1x1 convolution to at least twice as many channels, batch_norm, [another convolution and its
/// batch_norm, of a value from before,] add of both, or of the first and a value from before, with relu.
extern const FusionPattern kExpandSum{.name = "expand_sum",
                                      .match = match,
                                      .bind = bind,
                                      .reads_outside = true,
                                      .region = true,
                                      .accepts_masked_gradient = true,
                                      .use = FusionPattern::Use::training};

}  // namespace bantam::fusion
