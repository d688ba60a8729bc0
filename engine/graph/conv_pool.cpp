// Which convolutions run as one op with the max pooling after them.
#include <string>
#include <utility>

#include "bantam/engine/graph/graph.h"
#include "bantam/engine/graph/patterns.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/ops/conv2d.h"
#include "bantam/engine/ops/fused/conv2d_pool.h"
#include "bantam/engine/ops/pool2d.h"
#include "bantam/kernels/conv/conv2d_pool.h"

namespace bantam::fusion {
namespace {

Window2d window_of(const Conv2dOptions& options) {
  return {options.kernel, options.stride, options.dilation, options.padding};
}

/// A conv2d layer of one group that adds and applies nothing, or null.
const Conv2dOptions* plain_convolution(const Graph& graph, NodeId node) {
  const auto* conv = graph.node(node).layer->options<Conv2dOptions>();
  if (conv == nullptr || conv->bias || conv->groups != 1 || conv->activation.kind != Activation::none) return nullptr;
  return conv->padding_mode == ops::PaddingMode::zeros ? conv : nullptr;
}

/// Whether `node` pools its input as the op does.
bool pools(const Graph& graph, NodeId node, const kernels::Conv2dShape& shape) {
  if (node > graph.output() || graph.node(node).layer->kind() != "max_pool") return false;
  const auto* pool = graph.node(node).layer->options<PoolOptions>();
  if (pool == nullptr) return false;
  const Window2d window{pool->window, pool->stride, pool->dilation, pool->padding};
  const Shape& in = graph.node(node - 1).output;
  return ops::pool_shape("max_pool", in.prepend(shape.batch), {window, pool->ceil_mode}, true) ==
         kernels::pool_of_conv2d(shape);
}

NodeId match(const Graph& graph, NodeId first, const FusionTarget& target) {
  const Conv2dOptions* conv = plain_convolution(graph, first);
  if (conv == nullptr || first + 1 > graph.output()) return 0;
  const Shape in = graph.input_shapes(first)[0].prepend(1);
  const kernels::Conv2dShape shape = ops::conv2d_shape(in, conv->filters, window_of(*conv), 1);
  if (!kernels::conv2d_pool_supports(shape, target.compute, target.device)) return 0;
  return pools(graph, first + 1, shape) ? first + 1 : 0;
}

/// The op, over the convolution's weight.
class ConvPoolLayer : public BoundLayer {
 public:
  ConvPoolLayer(const Window2d& window, Parameter& weight) : window_(window), weight_(weight) {}

  Tensor forward(const Context& context, std::span<Tensor> inputs) override {
    const Tensor x = std::move(inputs[0]);
    return ops::conv2d_pool(context, x, weight_.value(), window_);
  }

 private:
  Window2d window_;
  Parameter& weight_;
};

std::unique_ptr<BoundLayer> bind(const Graph& graph, const Fusion& fusion, ParameterArena& parameters, BufferArena&) {
  const GraphNode& node = graph.node(fusion.first);
  return std::make_unique<ConvPoolLayer>(window_of(*plain_convolution(graph, fusion.first)),
                                         *parameters.find(node.name + "/weight"));
}

/// conv2d without bias and activation, then max_pool 2x2.
constexpr FusionPattern kPatterns[] = {{.name = "conv_pool", .match = match, .bind = bind}};

}  // namespace

const std::span<const FusionPattern> kConvPools = kPatterns;

}  // namespace bantam::fusion
