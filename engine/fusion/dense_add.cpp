// A dense layer, or a convolution that is one GEMM, and the sum of its output and another value: the GEMM adds bias and
// value to its float32 sums as it stores them.
#include <string>

#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/fusion/match.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/conv/conv2d_pointwise.h"

namespace bantam::fusion {
namespace {

/// A convolution that is one GEMM, without an activation, or null.
const Conv2dOptions* pointwise_at(const Graph& graph, NodeId node) {
  const auto* conv = options_at<Conv2dOptions>(graph, node);
  if (conv == nullptr || conv->activation.kind != Activation::none) return nullptr;
  return kernels::is_pointwise(conv2d_shape_at(graph, node, *conv)) ? conv : nullptr;
}

/// Whether the node is a dense layer without an activation.
bool is_plain_dense(const Graph& graph, NodeId node) {
  const auto* dense = options_at<DenseOptions>(graph, node);
  return dense != nullptr && dense->activation.kind == Activation::none;
}

/// Not where the other value is a batch norm's: the sum applies that as it reads it.
NodeId match(const Graph& graph, NodeId first, const FusionTarget&) {
  const NodeId sum = first + 1;
  if (!is_plain_dense(graph, first) && pointwise_at(graph, first) == nullptr) return 0;
  if (sum > graph.output() || graph.node(sum).layer->kind() != "add") return 0;
  const auto* activation = options_at<ActivationOptions>(graph, sum);
  const std::vector<NodeId>& inputs = graph.node(sum).inputs;
  if (activation == nullptr || activation->kind != Activation::none || inputs.size() != 2) return 0;
  const NodeId other = inputs[0] == first ? inputs[1] : inputs[0];
  return other == 0 || !graph.node(other).layer->traits().may_defer_norm ? sum : 0;
}

/// The op, over the layer's parameters.
class BoundDenseAdd : public BoundLayer {
 public:
  BoundDenseAdd(bool convolves, Parameter& weight, Parameter* bias)
      : convolves_(convolves), weight_(weight), bias_(bias) {}

  Tensor forward(const Context& context, std::span<Tensor> inputs) override {
    const Tensor x = std::move(inputs[0]), residual = std::move(inputs[1]), w = weight_.value();
    const Tensor bias = bias_ != nullptr ? bias_->value() : Tensor();
    return convolves_ ? ops::conv2d(context, x, w, {}, 1, bias, residual) : ops::dense(context, x, w, bias, residual);
  }

 private:
  bool convolves_;
  Parameter& weight_;
  Parameter* bias_;
};

std::unique_ptr<BoundLayer> bind(const Graph& graph, const Fusion& fusion, ParameterArena& parameters, BufferArena&) {
  const std::string& name = graph.node(fusion.first).name;
  return std::make_unique<BoundDenseAdd>(pointwise_at(graph, fusion.first) != nullptr,
                                         *parameters.find(name + "/weight"), parameters.find(name + "/bias"));
}

}  // namespace

/// dense, or conv2d with a kernel of 1x1, then add of two.
extern const FusionPattern kDenseAdd{
    .name = "dense_add", .match = match, .bind = bind, .reads_outside = true, .use = FusionPattern::Use::training};

}  // namespace bantam::fusion
