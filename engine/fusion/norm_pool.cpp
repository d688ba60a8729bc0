// Max pooling of a batch norm's output as one op: backward keeps x, the windows' winners and the batch's mean and
// deviation. Then which layers become it.
#include "bantam/kernels/pool/norm_pool.h"

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
#include "bantam/engine/ops/norm_targets.h"
#include "bantam/engine/ops/pool2d.h"

namespace bantam::ops {
namespace {

/// One call's shape, and its norm with the batch's statistics.
struct Call {
  kernels::Pool2dShape shape;
  DType dtype;
  Norm norm;

  Scratch scratch(const Context& context) const {
    return context.scratch(
        kernels::batch_norm_workspace_bytes(kernels::norm_of_pool(shape), dtype, context.device.kind));
  }
};

void backward(const Context& context, const Call& call, SavedTensor& saved, const Tensor& winner, const Tensor& dy,
              GradientStore& store) {
  NormTargets to(context, "norm_pool", call.norm, store);
  Tensor dx = context.allocate(saved.shape(), call.dtype);
  {
    const Tensor x = saved.unpack(context);
    const Scratch scratch = call.scratch(context);
    BANTAM_KERNEL(context.exec, norm_pool_backward, call.shape, call.dtype, call.norm.operand(x), dy.data(),
                  winner.data(), to.with(dx), scratch.get());
  }
  to.add_to(context, store);
  if (wants_gradient(saved.ref())) store.add(context, saved.ref(), std::move(dx));
}

}  // namespace

Tensor norm_pool(const Context& context, const Tensor& x, const Norm& norm, const PoolWindow& window) {
  const kernels::Pool2dShape shape = pool_shape(context, "norm_pool", x, window, true);
  const DeviceKind target = context.device.kind;
  const bool runs = target == DeviceKind::cpu || kernels::norm_pool_supports(shape, norm.activation, x.dtype(), target);
  if (context.pass == Pass::evaluate || !runs)
    return max_pool2d(context, batch_norm(context, x, norm), window.window, window.ceil_mode);
  const Call call{shape, x.dtype(), norm_of_batch(context, norm, shape.channels, statistics_of(x))};
  measure_norm(context, x, norm, call.norm);
  const bool recorded = records(context, {&x, &norm.scale, &norm.shift});
  Tensor y = context.allocate(pool_output(shape), x.dtype());
  const std::int64_t winner_channels = shape.channels * kernels::norm_pool_winner_bytes(target);
  const Tensor winner = recorded ? context.allocate(y.shape().with(3, winner_channels), DType::uint8) : Tensor();
  {
    const Scratch scratch = call.scratch(context);
    BANTAM_KERNEL(context.exec, norm_pool_forward, shape, call.dtype, call.norm.operand(x), y.data(),
                  recorded ? winner.data() : nullptr, scratch.get());
  }
  if (recorded)
    context.tape->record(context, y,
                         [=, x = SavedTensor(x)](const Context& ctx, Tensor dy, GradientStore& store) mutable {
                           backward(ctx, call, x, winner, dy, store);
                         });
  return y;
}

}  // namespace bantam::ops

namespace bantam::fusion {
namespace {

NodeId match(const Graph& graph, NodeId first, const FusionTarget& target) {
  const auto* norm = options_at<BatchNormOptions>(graph, first);
  const PoolOptions* pool = max_pool_at(graph, first + 1);
  if (norm == nullptr || pool == nullptr) return 0;
  const Shape in = graph.input_shapes(first + 1)[0].prepend(1);
  const kernels::Pool2dShape shape = ops::pool_shape("max_pool", in, {window_of(*pool), pool->ceil_mode}, true);
  return kernels::norm_pool_supports(shape, activation_of(*norm), target.compute, target.device) ? first + 1 : 0;
}

/// The op, over its norm's parameters.
class NormPoolLayer : public BoundLayer, public NormSource {
 public:
  NormPoolLayer(const Graph& graph, NodeId first, ParameterArena& parameters, BufferArena& buffers)
      : norm_(norm_at(graph, first, parameters, buffers)), pool_(*max_pool_at(graph, first + 1)) {}

  Tensor forward(const Context& context, std::span<Tensor> inputs) override {
    const Tensor x = std::move(inputs[0]);
    return ops::norm_pool(context, x, norm_.norm(), {window_of(pool_), pool_.ceil_mode});
  }
  Norm norm() const override { return norm_.norm(); }

 private:
  BoundNorm norm_;
  PoolOptions pool_;
};

std::unique_ptr<BoundLayer> bind(const Graph& graph, const Fusion& fusion, ParameterArena& parameters,
                                 BufferArena& buffers) {
  return std::make_unique<NormPoolLayer>(graph, fusion.first, parameters, buffers);
}

}  // namespace

/// batch_norm, max_pool.
extern const FusionPattern kNormPool{.name = "norm_pool", .match = match, .bind = bind};

}  // namespace bantam::fusion
