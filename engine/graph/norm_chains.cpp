// Which chains that begin with a batch norm run as one op, and what runs in their place.
#include <string>

#include "bantam/engine/graph/graph.h"
#include "bantam/engine/graph/patterns.h"
#include "bantam/engine/layers/bound_norm.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/ops/depthwise_conv2d.h"
#include "bantam/engine/ops/fused/norm_depthwise.h"
#include "bantam/engine/ops/pool2d.h"
#include "bantam/kernels/depthwise/norm_depthwise.h"
#include "bantam/kernels/pointwise/pointwise_norm.h"
#include "bantam/kernels/pool/norm_pool.h"

namespace bantam::fusion {
namespace {

template <class Options>
const Options* options_at(const Graph& graph, NodeId node) {
  return node <= graph.output() ? graph.node(node).layer->options<Options>() : nullptr;
}

template <class Options>
Window2d window_of(const Options& options) {
  return {options.kernel, options.stride, options.dilation, options.padding};
}

NodeId match_norm_depthwise(const Graph& graph, NodeId first, const FusionTarget&) {
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

/// The batch norm of a node, whose parameters and buffers go by its name.
BoundNorm norm_at(const Graph& graph, NodeId node, ParameterArena& parameters, BufferArena& buffers) {
  const std::string& name = graph.node(node).name;
  return {*options_at<BatchNormOptions>(graph, node), parameters.find(name + "/scale"),
          parameters.find(name + "/shift"),           *buffers.find(name + "/running_mean"),
          *buffers.find(name + "/running_variance"),  buffers};
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

std::unique_ptr<BoundLayer> bind_norm_depthwise(const Graph& graph, const Fusion& fusion, ParameterArena& parameters,
                                                BufferArena& buffers) {
  return std::make_unique<NormDepthwiseLayer>(graph, fusion.first, parameters, buffers);
}

/// Whether the next node, a pointwise convolution, alone reads it, and applies the second norm as its GEMM reads.
bool norm_depthwise_defers_norm(const Graph& graph, const Fusion& fusion, const FusionTarget& target) {
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

ops::PoolWindow window_of(const PoolOptions& options) {
  return {{options.window, options.stride, options.dilation, options.padding}, options.ceil_mode};
}

NodeId match_norm_pool(const Graph& graph, NodeId first, const FusionTarget& target) {
  if (target.device != DeviceKind::cpu) return 0;  // kernels/pool/norm_pool.h says why
  const auto* norm = options_at<BatchNormOptions>(graph, first);
  const auto* pool = options_at<PoolOptions>(graph, first + 1);
  if (norm == nullptr || pool == nullptr || graph.node(first + 1).layer->kind() != "max_pool") return 0;
  const kernels::Pool2dShape window{.window_h = pool->window.h,
                                    .window_w = pool->window.w,
                                    .stride_h = pool->stride.h,
                                    .stride_w = pool->stride.w,
                                    .dilation_h = pool->dilation.h,
                                    .dilation_w = pool->dilation.w};
  return kernels::norm_pool_supports(window, activation_of(*norm)) ? first + 1 : 0;
}

/// The op, over its norm's parameters.
class NormPoolLayer : public BoundLayer, public NormSource {
 public:
  NormPoolLayer(const Graph& graph, NodeId first, ParameterArena& parameters, BufferArena& buffers)
      : norm_(norm_at(graph, first, parameters, buffers)),
        window_(window_of(*options_at<PoolOptions>(graph, first + 1))) {}

  Tensor forward(const Context& context, std::span<Tensor> inputs) override {
    const Tensor x = std::move(inputs[0]);
    return ops::norm_pool(context, x, norm_.norm(), window_);
  }
  Norm norm() const override { return norm_.norm(); }

 private:
  BoundNorm norm_;
  ops::PoolWindow window_;
};

std::unique_ptr<BoundLayer> bind_norm_pool(const Graph& graph, const Fusion& fusion, ParameterArena& parameters,
                                           BufferArena& buffers) {
  return std::make_unique<NormPoolLayer>(graph, fusion.first, parameters, buffers);
}

constexpr FusionPattern kPatterns[] = {
    // batch_norm, depthwise_conv2d without bias and activation, batch_norm, both norms with relu or relu6
    {.name = "norm_depthwise",
     .match = match_norm_depthwise,
     .bind = bind_norm_depthwise,
     .defers_norm = norm_depthwise_defers_norm},
    // batch_norm, max_pool
    {.name = "norm_pool", .match = match_norm_pool, .bind = bind_norm_pool}};

}  // namespace

const std::span<const FusionPattern> kNormChains = kPatterns;

}  // namespace bantam::fusion
