// Separable block as one op: its backward keeps x (or its recipe) and codes of where the result came from. Then which
// layers become it.
#include <optional>
#include <string>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/gradient_target.h"
#include "bantam/engine/autograd/partial_gradients.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/fusion/fused_ops.h"
#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/fusion/match.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/ops/ops.h"

namespace bantam::ops {
namespace {

using kernels::SeparableBlockPass;
using kernels::SeparableBlockShape;
using kernels::Workspace;

/// `shape` with the operands' extents.
SeparableBlockShape checked_shape(const Context& context, const Tensor& x, const SeparableBlockWeights& w,
                                  SeparableBlockShape shape) {
  check_image("separable_block", x.shape());
  shape.batch = x.shape()[0];
  shape.in_h = x.shape()[1];
  shape.in_w = x.shape()[2];
  shape.in_channels = x.shape()[3];
  shape.out_channels = w.pointwise.shape()[0];
  shape.bias = w.bias.defined();
  if (w.depthwise.shape() != Shape{3, 3, shape.in_channels} || w.pointwise.elements() != shape.pointwise_elements() ||
      (shape.bias && w.bias.shape() != Shape{shape.out_channels}))
    throw ShapeError(fmt::format("separable_block: x {} and weights {}, {} do not fit", to_string(x.shape()),
                                 to_string(w.depthwise.shape()), to_string(w.pointwise.shape())));
  for (const Tensor* weight : {&w.depthwise, &w.pointwise, &w.bias})
    if (weight->defined() && weight->dtype() != x.dtype())
      throw DTypeError(
          fmt::format("separable_block: x is {} and a weight {}", to_string(x.dtype()), to_string(weight->dtype())));
  kernels::check_separable_block(shape, x.dtype(), context.device.kind);
  return shape;
}

kernels::SeparableBlockWeights data_of(const SeparableBlockWeights& w) {
  return {.depthwise = w.depthwise.data(),
          .pointwise = w.pointwise.data(),
          .bias = w.bias.defined() ? w.bias.data() : nullptr};
}

void run_backward(const Context& context, const SeparableBlockShape& shape, SavedTensor& x,
                  const SeparableBlockWeights& w, const Tensor& codes, const Tensor& dy, GradientStore& store) {
  using Unwanted = FloatGradient::Unwanted;
  FloatGradient depthwise(context, w.depthwise, store, Unwanted::written),
      pointwise(context, w.pointwise, store, Unwanted::written), bias(context, w.bias, store, Unwanted::written);
  Tensor dx;
  {
    const DType dtype = x.dtype();
    const bool wanted = wants_gradient(x.ref());
    const Tensor input = x.unpack(context);
    if (wanted) dx = context.allocate(x.shape(), dtype);
    const std::size_t bytes =
        kernels::separable_block_workspace_bytes(shape, dtype, SeparableBlockPass::backward, context.device.kind);
    const bool waits = context.step.gradients != nullptr && depthwise.in_arena() && pointwise.in_arena() &&
                       (!w.bias.defined() || bias.in_arena()) && context.step.gradients->accepts(context, bytes, 3);
    Tensor parts;
    if (waits) parts = context.allocate({static_cast<std::int64_t>(bytes)}, DType::uint8, Category::workspace);
    const Scratch scratch = context.scratch(waits ? 0 : bytes);
    const kernels::SeparableBlockInputs inputs{.x = input.data(),
                                               .weights = data_of(w),
                                               .dy = dy.data(),
                                               .codes = codes.defined() ? codes.as<std::uint8_t>() : nullptr};
    const kernels::SeparableBlockGradients gradients{.dx = wanted ? dx.data() : nullptr,
                                                     .depthwise = {depthwise.data, depthwise.accumulate},
                                                     .pointwise = {pointwise.data, pointwise.accumulate},
                                                     .bias = {bias.data, bias.accumulate},
                                                     .partial_sums = waits ? &context.step.gradients->sums() : nullptr};
    BANTAM_KERNEL(context.exec, separable_block_backward, shape, dtype, inputs, gradients,
                  waits ? Workspace{parts.data(), bytes} : scratch.get());
    if (waits)
      context.step.gradients->keep(context, {w.depthwise.parameter(), w.pointwise.parameter(), w.bias.parameter()},
                                   std::move(parts));
  }
  depthwise.add_to(context, w.depthwise, store);
  pointwise.add_to(context, w.pointwise, store);
  bias.add_to(context, w.bias, store);
  if (dx.defined()) store.add(context, x.ref(), std::move(dx));
}

}  // namespace

Tensor separable_block(const Context& context, const Tensor& x, const SeparableBlockWeights& weights,
                       kernels::SeparableBlockShape wanted) {
  const SeparableBlockShape shape = checked_shape(context, x, weights, wanted);
  context.check_device("separable_block", {&x, &weights.depthwise, &weights.pointwise});
  const DType dtype = x.dtype();
  const bool recorded = weights.bias.defined()
                            ? records(context, {&x, &weights.depthwise, &weights.pointwise, &weights.bias})
                            : records(context, {&x, &weights.depthwise, &weights.pointwise});
  Tensor y = context.allocate({shape.batch, shape.out_h(), shape.out_w(), shape.out_channels}, dtype);
  const std::int64_t code_bytes = recorded ? kernels::separable_block_code_bytes(shape) : 0;
  const Tensor codes = code_bytes > 0 ? context.allocate({code_bytes}, DType::uint8) : Tensor();
  {
    const Scratch scratch = context.scratch(
        kernels::separable_block_workspace_bytes(shape, dtype, SeparableBlockPass::forward, context.device.kind));
    BANTAM_KERNEL(context.exec, separable_block_forward, shape, dtype, x.data(), data_of(weights), y.data(),
                  codes.defined() ? codes.as<std::uint8_t>() : nullptr, scratch.get());
  }
  if (!recorded) return y;
  context.tape->record(context, y,
                       [=, x = SavedTensor(x)](const Context& ctx, Tensor dy, GradientStore& store) mutable {
                         run_backward(ctx, shape, x, weights, codes, dy, store);
                       });
  return y;
}

}  // namespace bantam::ops

namespace bantam::fusion {
namespace {

using kernels::SeparableBlockShape;

/// The block that node `node` is, for a batch of 1 and without pooling; nullopt where it is none.
std::optional<SeparableBlockShape> convolution_at(const Graph& graph, NodeId node) {
  const auto* options = options_at<SeparableConv2dOptions>(graph, node);
  if (options == nullptr) return std::nullopt;
  const bool plain = options->kernel == Extent2d{3, 3} && options->stride == Extent2d{1, 1} &&
                     options->dilation == Extent2d{1, 1} && options->multiplier == 1;
  const Activation activation = options->activation.kind;
  if (!plain || (activation != Activation::relu && activation != Activation::none)) return std::nullopt;
  const Shape& in = graph.node(graph.node(node).inputs[0]).output;
  const Padding pad = window_of(*options).resolve("separable_conv2d", in[0], in[1]);
  return SeparableBlockShape{.batch = 1,
                             .in_h = in[0],
                             .in_w = in[1],
                             .in_channels = in[2],
                             .out_channels = options->filters,
                             .pad_top = pad.top,
                             .pad_bottom = pad.bottom,
                             .pad_left = pad.left,
                             .pad_right = pad.right,
                             .pool = 1,
                             .bias = options->bias,
                             .relu = activation == Activation::relu};
}

/// Whether `node` is 2x2 max pooling whose windows neither overlap nor reach over the edge.
bool pools_pairs(const Graph& graph, NodeId node) {
  const PoolOptions* options = max_pool_at(graph, node);
  if (options == nullptr || options->window != Extent2d{2, 2} || options->stride != Extent2d{2, 2} ||
      options->dilation != Extent2d{1, 1} || options->ceil_mode)
    return false;
  const Shape& in = graph.node(node - 1).output;
  const Padding pad = window_of(*options).resolve("max_pool", in[0], in[1]);
  return pad.top == 0 && pad.bottom == 0 && pad.left == 0 && pad.right == 0;
}

NodeId match(const Graph& graph, NodeId first, const FusionTarget& target, std::int64_t pool) {
  std::optional<SeparableBlockShape> shape = convolution_at(graph, first);
  if (!shape || (pool == 2 && !pools_pairs(graph, first + 1))) return 0;
  shape->pool = pool;
  if (!kernels::separable_block_supported(*shape, target.compute, target.device)) return 0;
  return pool == 2 ? first + 1 : first;
}

/// The op, over the convolution's parameters.
class SeparableBlockLayer : public BoundLayer {
 public:
  SeparableBlockLayer(const SeparableBlockShape& shape, const std::string& node, ParameterArena& parameters)
      : shape_(shape),
        depthwise_(*parameters.find(node + "/depthwise_weight")),
        pointwise_(*parameters.find(node + "/pointwise_weight")),
        bias_(shape.bias ? parameters.find(node + "/bias") : nullptr) {}

  Tensor forward(const Context& context, std::span<Tensor> inputs) override {
    const Tensor x = std::move(inputs[0]);
    return ops::separable_block(
        context, x, {depthwise_.value(), pointwise_.value(), bias_ != nullptr ? bias_->value() : Tensor()}, shape_);
  }

 private:
  SeparableBlockShape shape_;
  Parameter& depthwise_;
  Parameter& pointwise_;
  Parameter* bias_;
};

std::unique_ptr<BoundLayer> bind(const Graph& graph, const Fusion& fusion, ParameterArena& parameters, BufferArena&) {
  SeparableBlockShape shape = convolution_at(graph, fusion.first).value();
  shape.pool = fusion.last > fusion.first ? 2 : 1;
  return std::make_unique<SeparableBlockLayer>(shape, graph.node(fusion.first).name, parameters);
}

NodeId match_pooled(const Graph& graph, NodeId first, const FusionTarget& target) {
  return match(graph, first, target, 2);
}
NodeId match_plain(const Graph& graph, NodeId first, const FusionTarget& target) {
  return match(graph, first, target, 1);
}

}  // namespace

/// separable_conv2d 3x3 with ReLU or no activation, then max_pool 2x2.
extern const FusionPattern kSeparableBlockPooled{.name = "separable_block_pooled", .match = match_pooled, .bind = bind};
/// separable_conv2d 3x3 with ReLU or no activation.
extern const FusionPattern kSeparableBlock{.name = "separable_block", .match = match_plain, .bind = bind};

}  // namespace bantam::fusion
