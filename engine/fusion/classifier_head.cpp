// End of a classifier with its loss as one op, whose forward computes all gradients but the two large ones, dw1 =
// dhiddenᵀ·x and dx = dhidden·w1. Then which layers become it.
#include "bantam/kernels/head/classifier_head.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/gradient_target.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/fusion/fused_ops.h"
#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/fusion/match.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/losses/loss.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/head/softmax_cross_entropy.h"

namespace bantam::ops {
namespace {

using Parameters = ClassifierHeadParameters;

kernels::ClassifierHeadShape checked_shape(const Tensor& x, const Parameters& p, const Tensor& labels,
                                           float smoothing) {
  const auto fits = [&] {
    if (x.shape().rank() != 2 || p.w1.shape().rank() != 2 || p.w2.shape().rank() != 2) return false;
    const std::int64_t hidden = p.w1.shape()[0], classes = p.w2.shape()[0];
    return p.w1.shape()[1] == x.shape()[1] && p.w2.shape()[1] == hidden && p.b1.shape() == Shape{hidden} &&
           p.b2.shape() == Shape{classes} && labels.shape() == Shape{x.shape()[0]};
  };
  if (!fits())
    throw ShapeError(fmt::format("classifier_head: x {}, weights {} and {}, biases {} and {}, and labels {} do not fit",
                                 to_string(x.shape()), to_string(p.w1.shape()), to_string(p.w2.shape()),
                                 to_string(p.b1.shape()), to_string(p.b2.shape()), to_string(labels.shape())));
  if (labels.dtype() != DType::int32)
    throw DTypeError(fmt::format("classifier_head: labels must be int32, got {}", to_string(labels.dtype())));
  for (const Tensor* parameter : {&p.w1, &p.b1, &p.w2, &p.b2})
    if (parameter->dtype() != x.dtype())
      throw DTypeError(fmt::format("classifier_head: x is {} and a parameter {}", to_string(x.dtype()),
                                   to_string(parameter->dtype())));
  const kernels::ClassifierHeadShape shape{x.shape()[0], x.shape()[1], p.w1.shape()[0], p.w2.shape()[0], smoothing};
  if (!kernels::classifier_head_supports(shape, x.dtype()))
    throw ShapeError(fmt::format("classifier_head: no kernel for {} inputs, {} hidden units and {} classes of {}",
                                 shape.inputs, shape.hidden, shape.classes, to_string(x.dtype())));
  return shape;
}

kernels::ParameterTarget target_of(const FloatGradient& gradient) { return {gradient.data, gradient.accumulate}; }

/// The operands and results of forward that run_backward reads.
struct Saved {
  kernels::ClassifierHeadShape shape;
  SavedTensor x;
  Parameters parameters;
  Tensor dhidden, partials, seed;
};

void run_backward(const Context& context, Saved& saved, const Tensor& upstream, GradientStore& store) {
  if (upstream.data() != saved.seed.data())
    throw Error("classifier_head: backward starts with another gradient than the forward was promised");
  const Parameters& p = saved.parameters;
  const DType dtype = saved.x.dtype();
  FloatGradient w1(context, p.w1, store), b1(context, p.b1, store), w2(context, p.w2, store), b2(context, p.b2, store);
  const ValueRef input = saved.x.ref();
  const Tensor x = saved.x.unpack(context);
  Tensor dx;
  if (wants_gradient(input)) dx = context.allocate(x.shape(), dtype);
  {
    const Scratch scratch =
        context.scratch(kernels::classifier_head_backward_workspace_bytes(saved.shape, dtype, context.device.kind));
    const kernels::ClassifierHeadSaved small{saved.dhidden.data(), saved.partials.as<float>()};
    const kernels::ClassifierHeadGradients to{dx.defined() ? dx.data() : nullptr, target_of(w1), target_of(b1),
                                              target_of(w2), target_of(b2)};
    BANTAM_KERNEL(context.exec, classifier_head_backward, saved.shape, dtype, x.data(), p.w1.data(), small, to,
                  scratch.get());
  }
  w1.add_to(context, p.w1, store);
  b1.add_to(context, p.b1, store);
  w2.add_to(context, p.w2, store);
  b2.add_to(context, p.b2, store);
  if (dx.defined()) store.add(context, input, std::move(dx));
}

}  // namespace

Tensor classifier_head(const Context& context, const Tensor& x, const Parameters& p, const Tensor& labels,
                       const LossSpec& spec) {
  context.check_device("classifier_head", {&x, &p.w1, &p.b1, &p.w2, &p.b2, &labels});
  const kernels::ClassifierHeadShape shape = checked_shape(x, p, labels, spec.options.label_smoothing);
  const bool recorded = records(context, {&x, &p.w1, &p.b1, &p.w2, &p.b2});
  if (recorded && !spec.seed.defined())
    throw Error("classifier_head: where gradients are wanted, the gradient of the loss must be given beforehand");
  Tensor loss = context.allocate({}, DType::float32), dhidden, partials;
  kernels::ClassifierHeadSaved saved;
  if (recorded) {
    dhidden = context.allocate({shape.batch, shape.hidden}, x.dtype());
    partials = context.allocate({kernels::classifier_head_partials(shape, context.device.kind)}, DType::float32);
    saved = {dhidden.data(), partials.as<float>()};
  }
  const float batch = static_cast<float>(std::max<std::int64_t>(shape.batch, 1));
  const kernels::ClassifierHeadLoss to{.labels = labels.as<std::int32_t>(),
                                       .divisor = spec.options.divisor > 0.0f ? spec.options.divisor : batch,
                                       .upstream = recorded ? spec.seed.as<float>() : nullptr,
                                       .loss = loss.as<float>(),
                                       .ring = spec.options.metrics,
                                       .slot = spec.options.metric_slot};
  const kernels::ClassifierHeadWeights weights{p.w1.data(), p.b1.data(), p.w2.data(), p.b2.data()};
  {
    const Scratch scratch =
        context.scratch(kernels::classifier_head_workspace_bytes(shape, x.dtype(), context.device.kind));
    BANTAM_KERNEL(context.exec, classifier_head_forward, shape, x.dtype(), x.data(), weights, to, saved, scratch.get());
  }
  if (!recorded) return loss;
  context.tape->record(context, loss,
                       [kept = Saved{shape, x, p, dhidden, partials, spec.seed}](const Context& ctx, Tensor upstream,
                                                                                 GradientStore& store) mutable {
                         run_backward(ctx, kept, upstream, store);
                       });
  return loss;
}

}  // namespace bantam::ops

namespace bantam::fusion {
namespace {

/// A dense layer's options where it has a bias and the activation, else null.
const DenseOptions* dense_with(const Graph& graph, NodeId node, Activation activation) {
  const auto* options = options_at<DenseOptions>(graph, node);
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
  if (input.rank() != 1) return 0;
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

}  // namespace

/// dense with ReLU, dense, at the end of a graph.
extern const FusionPattern kClassifierHead{
    .name = "classifier_head", .match = match, .bind = bind, .makes_loss = true, .use = FusionPattern::Use::training};

}  // namespace bantam::fusion
