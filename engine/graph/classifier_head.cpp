// The fused end of a classifier as a layer, and where it replaces others.
#include "bantam/engine/ops/fused/classifier_head.h"

#include <string>

#include "bantam/engine/graph/graph.h"
#include "bantam/engine/graph/patterns.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/losses/loss.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/head/classifier_head.h"

namespace bantam::fusion {
namespace {

/// A dense layer's options where it has a bias and the activation, else null.
const DenseOptions* dense_with(const Graph& graph, NodeId node, Activation activation) {
  const auto* options = graph.node(node).layer->options<DenseOptions>();
  return options != nullptr && options->bias && options->activation.kind == activation ? options : nullptr;
}

class ClassifierHead : public LossHead {
 public:
  ClassifierHead(Parameter& w1, Parameter& b1, Parameter& w2, Parameter& b2) : w1_(w1), b1_(b1), w2_(w2), b2_(b2) {}

  Tensor forward(const Context& context, std::span<Tensor> inputs) override {
    Tensor hidden = ops::bias_add(context, ops::dense(context, std::move(inputs[0]), w1_.value()), b1_.value());
    hidden = ops::activation(context, std::move(hidden), Activation::relu);
    return ops::bias_add(context, ops::dense(context, std::move(hidden), w2_.value()), b2_.value());
  }
  Tensor forward_loss(const Context& context, const Tensor& x, const Tensor& labels, const LossSpec& spec) override {
    return ops::classifier_head(context, x, {w1_.value(), b1_.value(), w2_.value(), b2_.value()}, labels, spec);
  }

 private:
  Parameter &w1_, &b1_, &w2_, &b2_;
};

/// On the CPU the composition is as fast.
NodeId match(const Graph& graph, NodeId first, const FusionTarget& target) {
  if (target.device != DeviceKind::cuda || first + 1 != graph.output()) return 0;
  const DenseOptions* hidden = dense_with(graph, first, Activation::relu);
  const DenseOptions* logits = dense_with(graph, first + 1, Activation::none);
  if (hidden == nullptr || logits == nullptr) return 0;
  const Shape& input = graph.node(graph.node(first).inputs[0]).output;
  const kernels::ClassifierHeadShape shape{1, input[0], hidden->units, logits->units};
  return kernels::classifier_head_supports(shape, target.compute) ? first + 1 : 0;
}

std::unique_ptr<BoundLayer> bind(const Graph& graph, const Fusion& fusion, ParameterArena& parameters, BufferArena&) {
  const auto parameter = [&](NodeId node, const char* name) -> Parameter& {
    return *parameters.find(graph.node(node).name + "/" + name);
  };
  return std::make_unique<ClassifierHead>(parameter(fusion.first, "weight"), parameter(fusion.first, "bias"),
                                          parameter(fusion.last, "weight"), parameter(fusion.last, "bias"));
}

/// dense with ReLU, dense, at the end of a graph.
constexpr FusionPattern kPatterns[] = {{.name = "classifier_head", .match = match, .bind = bind, .makes_loss = true}};

}  // namespace

const std::span<const FusionPattern> kClassifierHeads = kPatterns;

}  // namespace bantam::fusion
