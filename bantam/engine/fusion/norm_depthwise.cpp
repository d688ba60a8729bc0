// Which depthwise convolutions run between their batch norms as one op, and what runs in their place.
#include "bantam/engine/fusion/norm_depthwise.h"

#include <string>

#include "bantam/engine/graph.h"
#include "bantam/engine/layers.h"
#include "bantam/engine/ops/norm_depthwise.h"
#include "bantam/kernels/norm_depthwise.h"

namespace bantam::fusion {
namespace {

const GraphNode& node_at(const Graph& graph, NodeId node) { return graph.nodes()[static_cast<std::size_t>(node)]; }

template <class Options>
const Options* options_at(const Graph& graph, NodeId node) {
  return node <= graph.output() ? node_at(graph, node).layer->options<Options>() : nullptr;
}

Window2d window_of(const DepthwiseConv2dOptions& options) {
  return {options.kernel, options.stride, options.dilation, options.padding};
}

kernels::ActivationFunction activation_of(const BatchNormOptions& options) {
  return {options.activation.kind, options.activation.slope};
}

int match(const Graph& graph, int first, const FusionTarget&) {
  const auto* before = options_at<BatchNormOptions>(graph, first);
  const auto* middle = options_at<DepthwiseConv2dOptions>(graph, first + 1);
  const auto* behind = options_at<BatchNormOptions>(graph, first + 2);
  if (before == nullptr || middle == nullptr || behind == nullptr) return 0;
  if (middle->bias || middle->activation.kind != kernels::Activation::none) return 0;
  const Shape& in = node_at(graph, first).output;
  if (in.rank() != 3) return 0;
  const Padding pad = window_of(*middle).resolve("depthwise_conv2d", in[0], in[1]);
  const kernels::DepthwiseConv2dShape shape{.batch = 1,
                                            .in_h = in[0],
                                            .in_w = in[1],
                                            .channels = in[2],
                                            .multiplier = middle->multiplier,
                                            .kernel_h = middle->kernel.h,
                                            .kernel_w = middle->kernel.w,
                                            .stride_h = middle->stride.h,
                                            .stride_w = middle->stride.w,
                                            .pad_top = pad.top,
                                            .pad_bottom = pad.bottom,
                                            .pad_left = pad.left,
                                            .pad_right = pad.right,
                                            .dilation_h = middle->dilation.h,
                                            .dilation_w = middle->dilation.w};
  return kernels::norm_depthwise_takes(shape, activation_of(*before), activation_of(*behind)) ? first + 2 : 0;
}

/// A norm's parameters and buffers, by its node's name.
class BoundNorm {
 public:
  BoundNorm(const std::string& node, const BatchNormOptions& options, ParameterArena& parameters, BufferArena& buffers)
      : scale_(parameters.find(node + "/scale")),
        shift_(parameters.find(node + "/shift")),
        mean_(*buffers.find(node + "/running_mean")),
        variance_(*buffers.find(node + "/running_variance")),
        buffers_(buffers),
        settings_{.epsilon = options.epsilon,
                  .running = {options.rate, options.unbiased},
                  .activation = activation_of(options)} {}
  ops::NormStage stage() const {
    return {.tensors = {.scale = scale_ != nullptr ? scale_->value() : Tensor(),
                        .shift = shift_ != nullptr ? shift_->value() : Tensor(),
                        .running_mean = buffers_.current(mean_),
                        .running_variance = buffers_.current(variance_),
                        .pending_mean = buffers_.pending(mean_),
                        .pending_variance = buffers_.pending(variance_)},
            .settings = settings_};
  }

 private:
  Parameter* scale_;
  Parameter* shift_;
  const Buffer& mean_;
  const Buffer& variance_;
  BufferArena& buffers_;
  ops::BatchNormSettings settings_;
};

/// The op, over its three nodes' parameters.
class NormDepthwiseLayer : public BoundLayer {
 public:
  NormDepthwiseLayer(const Graph& graph, NodeId first, ParameterArena& parameters, BufferArena& buffers)
      : before_(node_at(graph, first).name, *options_at<BatchNormOptions>(graph, first), parameters, buffers),
        weight_(*parameters.find(node_at(graph, first + 1).name + "/weight")),
        window_(window_of(*options_at<DepthwiseConv2dOptions>(graph, first + 1))),
        behind_(node_at(graph, first + 2).name, *options_at<BatchNormOptions>(graph, first + 2), parameters, buffers) {}

  Tensor forward(const Context& context, std::span<Tensor> inputs) override {
    const Tensor x = std::move(inputs[0]);
    return ops::norm_depthwise(context, x, before_.stage(), weight_.value(), window_, behind_.stage());
  }
  std::optional<ops::NormStage> norm_of_input() const override { return before_.stage(); }

 private:
  BoundNorm before_;
  Parameter& weight_;
  Window2d window_;
  BoundNorm behind_;
};

std::unique_ptr<BoundLayer> bind(const Graph& graph, const Fusion& fusion, ParameterArena& parameters,
                                 BufferArena& buffers) {
  return std::make_unique<NormDepthwiseLayer>(graph, fusion.first, parameters, buffers);
}

}  // namespace

const FusionPattern kNormDepthwise{.name = "norm_depthwise", .match = match, .bind = bind};

}  // namespace bantam::fusion
