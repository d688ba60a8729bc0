// Convolution with the max pooling of its output: backward keeps x (or its recipe) and the windows' winners, and reads
// w from the arena. Then which layers become it.
#include <string>
#include <utility>

#include "bantam/engine/autograd/gradient_target.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/engine/fusion/fused_ops.h"
#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/fusion/match.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/ops/conv2d.h"
#include "bantam/engine/ops/pool2d.h"
#include "bantam/kernels/conv/conv2d_pool.h"
#include "bantam/kernels/elementwise/bias_activation.h"

namespace bantam::ops {
namespace {

using kernels::Conv2dPass;
using kernels::Conv2dShape;

Scratch scratch_of(const Context& context, const Conv2dShape& shape, DType dtype, Conv2dPass pass) {
  return context.scratch(kernels::conv2d_pool_workspace_bytes(shape, dtype, pass, context.device.kind));
}

void weight_gradient(const Context& context, const Conv2dShape& shape, const Tensor& x, const Tensor& dy,
                     const Tensor& winner, const Tensor& w, GradientStore& store) {
  FloatGradient dw(context, w, store);
  const Scratch scratch = scratch_of(context, shape, x.dtype(), Conv2dPass::grad_weight);
  BANTAM_KERNEL(context.exec, conv2d_pool_grad_weight, shape, x.dtype(), x.data(), dy.data(),
                winner.as<std::uint16_t>(), {.dw = dw.data, .accumulate = dw.accumulate}, scratch.get());
  dw.add_to(context, w, store);
}

/// Through the gradient of the convolution's output.
Tensor input_gradient(const Context& context, const Conv2dShape& shape, const Tensor& dy, const Tensor& winner,
                      const Tensor& w) {
  const DType dtype = dy.dtype();
  Tensor dx = context.allocate({shape.batch, shape.in_h, shape.in_w, shape.in_channels}, dtype);
  const Tensor dense =
      context.allocate({shape.batch, shape.out_h(), shape.out_w(), shape.out_channels}, dtype, Category::workspace);
  BANTAM_KERNEL(context.exec, max_pool2d_grad_input, kernels::pool_of_conv2d(shape), dtype, dy.data(),
                winner.as<std::uint16_t>(), dense.data());
  const Scratch scratch = conv2d_scratch(context, shape, dtype, Conv2dPass::grad_input);
  BANTAM_KERNEL(context.exec, conv2d_grad_input, shape, dtype, dense.data(), w.data(), dx.data(), scratch.get());
  return dx;
}

/// Adds this op's part of the gradient of b where x is f(z + b): Σ over pixels of dx·f', from the weight gradient
/// of the convolution with f' in place of x. Neither dx nor the gradient of the convolution's output is computed.
void bias_gradient(const Context& context, const Conv2dShape& shape, BiasedActivation& source, const Tensor& dy,
                   const Tensor& winner, const Tensor& w, GradientStore& store) {
  const DType dtype = dy.dtype();
  FloatGradient db(context, source.b, store);
  const Tensor slopes = context.allocate(source.x.shape(), dtype, Category::workspace);
  const kernels::BiasShape rows{.rows = shape.x_elements() / shape.in_channels, .channels = shape.in_channels};
  {
    const Tensor z = source.x.unpack(context);
    BANTAM_KERNEL(context.exec, bias_activation_slopes, source.f, rows, dtype, z.data(), source.b.data(),
                  slopes.data());
  }
  const Tensor products = context.allocate({shape.w_elements()}, DType::float32, Category::workspace);
  const Scratch scratch = scratch_of(context, shape, dtype, Conv2dPass::grad_weight);
  BANTAM_KERNEL(context.exec, conv2d_pool_grad_weight, shape, dtype, slopes.data(), dy.data(),
                winner.as<std::uint16_t>(), {.dw = products.as<float>()}, scratch.get());
  BANTAM_KERNEL(context.exec, conv2d_input_sums, shape, dtype, w.data(), products.as<float>(), db.data, db.accumulate);
  db.add_to(context, source.b, store);
}

}  // namespace

Tensor conv2d_pool(const Context& context, const Tensor& x, const Tensor& w, const Window2d& window) {
  const Conv2dShape shape = conv2d_shape(x, w, window, 1);
  context.check_device("conv2d_pool", {&x, &w});
  const bool recorded = records(context, {&x, &w});
  Tensor y = context.allocate(pool_output(kernels::pool_of_conv2d(shape)), x.dtype());
  const Tensor winner = recorded ? allocate_winners(context, y.shape()) : Tensor();
  {
    const Scratch scratch = scratch_of(context, shape, x.dtype(), Conv2dPass::forward);
    BANTAM_KERNEL(context.exec, conv2d_pool_forward, shape, x.dtype(), x.data(), w.data(), y.data(),
                  recorded ? winner.as<std::uint16_t>() : nullptr, scratch.get());
  }
  if (!recorded) return y;
  BiasedActivation source;
  if (const BiasedActivation* note = biased_activation_of(x); note != nullptr) source = *note;
  context.tape->record(context, y,
                       [=, x = SavedTensor(x)](const Context& ctx, Tensor dy, GradientStore& store) mutable {
                         if (wants_gradient(w)) weight_gradient(ctx, shape, x.unpack(ctx), dy, winner, w, store);
                         if (!wants_gradient(x.ref())) return;
                         if (source.b.defined())
                           bias_gradient(ctx, shape, source, dy, winner, w, store);
                         else
                           store.add(ctx, x.ref(), input_gradient(ctx, shape, dy, winner, w));
                       });
  return y;
}

}  // namespace bantam::ops

namespace bantam::fusion {
namespace {

/// A conv2d layer of one group that adds and applies nothing, or null.
const Conv2dOptions* plain_convolution(const Graph& graph, NodeId node) {
  const auto* conv = options_at<Conv2dOptions>(graph, node);
  if (conv == nullptr || conv->bias || conv->groups != 1 || conv->activation.kind != Activation::none) return nullptr;
  return conv->padding_mode == ops::PaddingMode::zeros ? conv : nullptr;
}

/// Whether `node` pools its input as the op does.
bool pools(const Graph& graph, NodeId node, const kernels::Conv2dShape& shape) {
  const PoolOptions* pool = max_pool_at(graph, node);
  if (pool == nullptr) return false;
  const Shape& in = graph.node(node - 1).output;
  return ops::pool_shape("max_pool", in.prepend(shape.batch), {window_of(*pool), pool->ceil_mode}, true) ==
         kernels::pool_of_conv2d(shape);
}

NodeId match(const Graph& graph, NodeId first, const FusionTarget& target) {
  const Conv2dOptions* conv = plain_convolution(graph, first);
  if (conv == nullptr) return 0;
  const kernels::Conv2dShape shape = conv2d_shape_at(graph, first, *conv);
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

}  // namespace

/// conv2d without bias and activation, then max_pool 2x2.
extern const FusionPattern kConvPool{
    .name = "conv_pool", .match = match, .bind = bind, .use = FusionPattern::Use::training};

}  // namespace bantam::fusion
