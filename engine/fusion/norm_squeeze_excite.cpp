// A batch norm and squeeze-and-excitation after it as one op: backward keeps x, the batch's statistics and the gate's
// values, and the norm's output is never written. Then which layers become it.
#include <string>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/engine/fusion/fused_ops.h"
#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/fusion/match.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/layers/bound_norm.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/ops/batch_norm.h"
#include "bantam/engine/ops/norm_targets.h"
#include "bantam/engine/ops/squeeze_excite.h"
#include "bantam/kernels/join/norm_gate.h"

namespace bantam::ops {
namespace {

/// A call of squeeze_excite, and the norm before it with the batch's statistics.
struct Call {
  SqueezeExciteCall gate;
  Norm norm;

  Scratch scratch(const Context& context) const {
    return context.scratch(kernels::norm_gate_workspace_bytes(gate.image, context.device.kind));
  }
};

void squeeze(const Context& context, const Call& call, const Tensor& x) {
  const Scratch scratch = call.scratch(context);
  BANTAM_KERNEL(context.exec, norm_gate_mean, call.gate.image, call.norm.operand(x), call.gate.mean.as<float>(),
                scratch.get());
}

Tensor scaled(const Context& context, const Call& call, const Tensor& x) {
  Tensor y = context.allocate(x.shape(), x.dtype());
  const Scratch scratch = call.scratch(context);
  BANTAM_KERNEL(context.exec, norm_gate_apply, call.gate.image, call.norm.operand(x), call.gate.factor.as<float>(),
                y.data(), scratch.get());
  return y;
}

void backward(const Context& context, const Call& call, SavedTensor& saved, Tensor dy, GradientStore& store) {
  const kernels::ChannelScaleShape& s = call.gate.image;
  const Tensor x = saved.unpack(context);
  const Tensor sums = context.allocate({kernels::kNormGateSums, s.samples, s.channels}, DType::float32);
  {
    const Scratch scratch = call.scratch(context);
    BANTAM_KERNEL(context.exec, norm_gate_grad_sums, s, call.norm.operand(x), dy.data(), sums.as<float>(),
                  scratch.get());
  }
  const Tensor offset = call.gate.backward(context, sums.as<float>(), store);
  NormTargets to(context, "norm_squeeze_excite", call.norm, store);
  const bool wanted = wants_gradient(saved.ref());
  Tensor dx = wanted ? reuse_or_allocate(context, dy) : Tensor();
  {
    const Scratch scratch = call.scratch(context);
    BANTAM_KERNEL(context.exec, norm_gate_grad, s,
                  {.x = call.norm.operand(x),
                   .dy = dy.data(),
                   .factor = call.gate.factor.as<float>(),
                   .offset = offset.as<float>(),
                   .sums = sums.as<float>()},
                  to.with(dx), scratch.get());
  }
  dy = Tensor();
  to.add_to(context, store);
  if (wanted) store.add(context, saved.ref(), std::move(dx));
}

}  // namespace

Tensor norm_squeeze_excite(const Context& context, const Tensor& x, const Norm& norm,
                           const SqueezeExciteTensors& tensors, ActivationFunction activation, Activation gate) {
  if (context.pass == Pass::evaluate)
    return squeeze_excite(context, batch_norm(context.inner(), x, norm), tensors, activation, gate);
  check_squeeze_excite(context, x, tensors);
  check_batch_norm(context, x, norm);
  const std::int64_t channels = x.shape()[3];
  if (!kernels::norm_gate_supports(channels, norm.activation))
    throw ShapeError("norm_squeeze_excite: channels or an activation that its kernels do not support");
  const Call call{SqueezeExciteCall(context, x, tensors, activation, gate),
                  norm_of_batch(context, norm, channels, statistics_of(x))};
  measure_norm(context, x, norm, call.norm);
  squeeze(context, call, x);
  call.gate.forward(context);
  Tensor y = scaled(context, call, x);
  if (!records_squeeze_excite(context, x, tensors) && !records(context, {&norm.scale, &norm.shift})) return y;
  const SavedTensor kept = x;
  context.tape->record(context, y, [=, saved = kept](const Context& ctx, Tensor dy, GradientStore& store) mutable {
    backward(ctx, call, saved, std::move(dy), store);
  });
  attach_recipe(context, y, {&kept}, [=](const Context& ctx) { return scaled(ctx, call, kept.get(ctx)); });
  return y;
}

}  // namespace bantam::ops

namespace bantam::fusion {
namespace {

NodeId match(const Graph& graph, NodeId first, const FusionTarget& target) {
  if (target.device != DeviceKind::cuda) return 0;  // the CPU would spend more on activations than it saves on bytes
  const auto* norm = options_at<BatchNormOptions>(graph, first);
  if (norm == nullptr || options_at<SqueezeExciteOptions>(graph, first + 1) == nullptr) return 0;
  const Shape& in = graph.node(first).output;
  return in.rank() == 3 && kernels::norm_gate_supports(in[2], activation_of(*norm)) ? first + 1 : 0;
}

/// The op, over its two nodes' parameters.
class NormSqueezeExciteLayer : public BoundLayer, public NormSource {
 public:
  NormSqueezeExciteLayer(const Graph& graph, NodeId first, ParameterArena& parameters, BufferArena& buffers)
      : norm_(norm_at(graph, first, parameters, buffers)),
        options_(*options_at<SqueezeExciteOptions>(graph, first + 1)),
        reduce_(*parameters.find(graph.node(first + 1).name + "/reduce/weight")),
        reduce_bias_(*parameters.find(graph.node(first + 1).name + "/reduce/bias")),
        expand_(*parameters.find(graph.node(first + 1).name + "/expand/weight")),
        expand_bias_(*parameters.find(graph.node(first + 1).name + "/expand/bias")) {}

  Tensor forward(const Context& context, std::span<Tensor> inputs) override {
    const Tensor x = std::move(inputs[0]);
    return ops::norm_squeeze_excite(context, x, norm_.norm(),
                                    {reduce_.value(), reduce_bias_.value(), expand_.value(), expand_bias_.value()},
                                    {options_.activation.kind, options_.activation.slope}, options_.gate);
  }
  Norm norm() const override { return norm_.norm(); }

 private:
  BoundNorm norm_;
  SqueezeExciteOptions options_;
  Parameter &reduce_, &reduce_bias_, &expand_, &expand_bias_;
};

std::unique_ptr<BoundLayer> bind(const Graph& graph, const Fusion& fusion, ParameterArena& parameters,
                                 BufferArena& buffers) {
  return std::make_unique<NormSqueezeExciteLayer>(graph, fusion.first, parameters, buffers);
}

}  // namespace

/// batch_norm with silu, hard_swish or a piecewise linear activation, squeeze_excite.
extern const FusionPattern kNormSqueezeExcite{
    .name = "norm_squeeze_excite", .match = match, .bind = bind, .use = FusionPattern::Use::training};

}  // namespace bantam::fusion
