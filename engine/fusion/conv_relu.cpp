// Convolution with bias and relu as one op: no mask is written, backward reads relu' from the output, which the readers
// keep anyway, or gets a gradient that has been multiplied by it. Then which layers become it.
#include <algorithm>
#include <string>
#include <utility>

#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/engine/fusion/fused_ops.h"
#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/fusion/match.h"
#include "bantam/engine/ops/bias.h"
#include "bantam/engine/ops/conv2d.h"
#include "bantam/kernels/conv/conv2d_inference.h"

namespace bantam::ops {
namespace {

constexpr ActivationFunction kRelu{Activation::relu};

/// Writes relu(conv2d(x, w) + b) to y.
void forward(const Context& context, const kernels::Conv2dShape& shape, const Tensor& x, const Tensor& w,
             const Tensor& b, const Tensor& y) {
  if (kernels::conv2d_fuses_relu(shape, x.dtype(), context.device.kind)) {
    const Scratch scratch =
        context.scratch(kernels::conv2d_inference_workspace_bytes(shape, x.dtype(), context.device.kind));
    const kernels::Epilogue epilogue{.bias = b.data(), .f = kRelu};
    BANTAM_KERNEL(context.exec, conv2d_inference, shape, x.dtype(), x.data(), w.data(), epilogue, y.data(),
                  scratch.get());
    return;
  }
  {
    const Scratch scratch = conv2d_scratch(context, shape, x.dtype(), kernels::Conv2dPass::forward);
    BANTAM_KERNEL(context.exec, conv2d_forward, shape, x.dtype(), x.data(), w.data(), y.data(), scratch.get());
  }
  const kernels::BiasShape rows{.rows = shape.batch * shape.out_h() * shape.out_w(), .channels = shape.out_channels};
  BANTAM_KERNEL(context.exec, bias_activation_forward, kRelu, rows, y.dtype(), y.data(), b.data(), y.data(), nullptr);
}

}  // namespace

Tensor conv2d_relu(const Context& context, const Tensor& x, const Tensor& w, const Tensor& b, const Window2d& window,
                   std::int64_t groups) {
  const kernels::Conv2dShape shape = conv2d_shape(x, w, window, groups);
  context.check_device("conv2d_relu", {&x, &w});
  Tensor y = context.allocate({shape.batch, shape.out_h(), shape.out_w(), shape.out_channels}, x.dtype());
  (void)bias_shape(context, "conv2d_relu", y, b);
  const bool masked = masks_bias_gradient(context, kRelu);
  if (!masked || !context.output_unused()) forward(context, shape, x, w, b, y);
  if (masked) set_sum_activation(y, {});
  if (!records(context, {&x, &w, &b})) return y;
  Tensor sum = y.view(y.shape());  // the convolution's output, which is never written, has an identity of its own
  if (records(context, {&x, &w})) record_conv2d(context.inner(), sum, shape, x, w);
  SavedActivation saved;
  if (!masked) saved.output = SavedTensor(y);
  record_bias_activation(context, y, sum, b, kRelu, saved);
  return y;
}

}  // namespace bantam::ops

namespace bantam::fusion {
namespace {

/// A conv2d layer that pads with zeros, or null.
const Conv2dOptions* convolution_at(const Graph& graph, NodeId node) {
  const auto* convolution = options_at<Conv2dOptions>(graph, node);
  return convolution != nullptr && convolution->padding_mode == ops::PaddingMode::zeros ? convolution : nullptr;
}

/// A conv2d layer with bias and relu, or null.
const Conv2dOptions* biased_relu_at(const Graph& graph, NodeId node) {
  const auto* convolution = options_at<Conv2dOptions>(graph, node);
  const bool has_both = convolution != nullptr && convolution->bias && convolution->activation.kind == Activation::relu;
  return has_both ? convolution : nullptr;
}

/// Whether the convolutions after the node keep its value for their backward, or backward needs none: a pooling
/// multiplies its gradient by relu'.
bool costs_no_memory(const Graph& graph, NodeId node, const FusionTarget& target) {
  if (const NodeId reader = graph.only_reader(node);
      reader != 0 && pool_masks_gradient(graph, reader, {node, node}, target))
    return true;
  bool read = false;
  for (NodeId reader = node + 1; reader <= graph.output(); ++reader) {
    if (std::ranges::count(graph.node(reader).inputs, node) == 0) continue;
    if (convolution_at(graph, reader) == nullptr) return false;
    read = true;
  }
  return read && node != graph.output();
}

NodeId match(const Graph& graph, NodeId first, const FusionTarget& target) {
  const Conv2dOptions* convolution = biased_relu_at(graph, first);
  if (convolution == nullptr || convolution_at(graph, first) == nullptr) return 0;
  const kernels::Conv2dShape shape = conv2d_shape_at(graph, first, *convolution);
  if (!kernels::conv2d_fuses_relu(shape, target.compute, target.device)) return 0;
  return costs_no_memory(graph, first, target) ? first : 0;
}

/// The op, over the convolution's parameters.
class ConvReluLayer : public BoundLayer {
 public:
  ConvReluLayer(const Conv2dOptions& options, Parameter& weight, Parameter& bias)
      : window_(window_of(options)), groups_(options.groups), weight_(weight), bias_(bias) {}

  Tensor forward(const Context& context, std::span<Tensor> inputs) override {
    const Tensor x = std::move(inputs[0]);
    return ops::conv2d_relu(context, x, weight_.value(), bias_.value(), window_, groups_);
  }

 private:
  Window2d window_;
  std::int64_t groups_;
  Parameter& weight_;
  Parameter& bias_;
};

std::unique_ptr<BoundLayer> bind(const Graph& graph, const Fusion& fusion, ParameterArena& parameters, BufferArena&) {
  const std::string& name = graph.node(fusion.first).name;
  return std::make_unique<ConvReluLayer>(*biased_relu_at(graph, fusion.first), *parameters.find(name + "/weight"),
                                         *parameters.find(name + "/bias"));
}

}  // namespace

/// conv2d with bias and relu, read by convolutions or by one max_pool.
extern const FusionPattern kConvRelu{
    .name = "conv_relu", .match = match, .bind = bind, .use = FusionPattern::Use::training};

}  // namespace bantam::fusion

namespace bantam {

bool pool_masks_gradient(const Graph& graph, NodeId node, const Fusion& producer, const FusionTarget& target) {
  if (target.device != DeviceKind::cuda || fusion::max_pool_at(graph, node) == nullptr) return false;
  if (producer.first != producer.last || (producer.pattern != nullptr && producer.pattern != &fusion::kConvRelu))
    return false;
  return fusion::biased_relu_at(graph, producer.first) != nullptr && graph.only_reader(producer.last) == node;
}

}  // namespace bantam
