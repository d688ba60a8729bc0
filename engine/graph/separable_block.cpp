// Which separable convolutions become one op, and what runs in their place.
#include "bantam/engine/ops/fused/separable_block.h"

#include <optional>
#include <string>

#include "bantam/engine/graph/graph.h"
#include "bantam/engine/graph/patterns.h"
#include "bantam/engine/layers/layers.h"

namespace bantam::fusion {
namespace {

using kernels::SeparableBlockShape;

/// The block that node `node` is, for a batch of 1 and without pooling; nullopt where it is none.
std::optional<SeparableBlockShape> convolution_at(const Graph& graph, NodeId node) {
  const GraphNode& described = graph.node(node);
  const auto* options = described.layer->options<SeparableConv2dOptions>();
  if (options == nullptr) return std::nullopt;
  const bool plain = options->kernel == Extent2d{3, 3} && options->stride == Extent2d{1, 1} &&
                     options->dilation == Extent2d{1, 1} && options->multiplier == 1;
  const Activation activation = options->activation.kind;
  if (!plain || (activation != Activation::relu && activation != Activation::none)) return std::nullopt;
  const Shape& in = graph.node(described.inputs[0]).output;
  const Window2d window{options->kernel, options->stride, options->dilation, options->padding};
  const Padding pad = window.resolve("separable_conv2d", in[0], in[1]);
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
  if (node > graph.output() || graph.node(node).layer->kind() != "max_pool") return false;
  const auto* options = graph.node(node).layer->options<PoolOptions>();
  if (options == nullptr || options->window != Extent2d{2, 2} || options->stride != Extent2d{2, 2} ||
      options->dilation != Extent2d{1, 1} || options->ceil_mode)
    return false;
  const Shape& in = graph.node(node - 1).output;
  const Padding pad =
      Window2d{.kernel = options->window, .stride = options->stride, .padding = options->padding}.resolve("max_pool",
                                                                                                          in[0], in[1]);
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

/// separable_conv2d 3x3 with ReLU or no activation, then max_pool 2x2; the same without pooling.
constexpr FusionPattern kPatterns[] = {{"separable_block_pooled", match_pooled, bind},
                                       {"separable_block", match_plain, bind}};

}  // namespace

const std::span<const FusionPattern> kSeparableBlocks = kPatterns;

}  // namespace bantam::fusion
