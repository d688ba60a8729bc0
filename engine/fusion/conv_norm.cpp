// Choice of the convolutions that compute the statistics of the norm after them, and of those that multiply the
// gradient of the sum before them by relu'.
#include <algorithm>

#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/fusion/match.h"
#include "bantam/engine/ops/conv2d.h"
#include "bantam/engine/ops/depthwise_conv2d.h"
#include "bantam/kernels/conv/conv2d_pointwise.h"
#include "bantam/kernels/conv/conv2d_statistics.h"
#include "bantam/kernels/depthwise/depthwise_conv2d.h"
#include "bantam/kernels/pointwise/masked_gradient.h"

namespace bantam {
namespace {

template <class Options>
bool is_plain(const Options* options) {
  return options != nullptr && !options->bias && options->activation.kind == Activation::none;
}

/// Whether the node is a convolution whose kernel computes the statistics of its output.
bool writes_statistics(const Graph& graph, NodeId node, DType dtype) {
  if (const auto* convolution = fusion::options_at<Conv2dOptions>(graph, node);
      is_plain(convolution) && convolution->padding_mode == ops::PaddingMode::zeros)
    return kernels::conv2d_writes_statistics(
        ops::conv2d_shape(graph.input_shapes(node)[0].prepend(1), convolution->filters, fusion::window_of(*convolution),
                          convolution->groups),
        dtype);
  if (const auto* depthwise = fusion::options_at<DepthwiseConv2dOptions>(graph, node); is_plain(depthwise))
    return kernels::depthwise_conv2d_writes_statistics(
        ops::depthwise_conv2d_shape("depthwise_conv2d", graph.input_shapes(node)[0].prepend(1), depthwise->multiplier,
                                    fusion::window_of(*depthwise)),
        dtype);
  return false;
}

}  // namespace

NodeId norm_after_conv(const Graph& graph, NodeId node, const FusionTarget& target) {
  if (target.device != DeviceKind::cuda || !writes_statistics(graph, node, target.compute)) return 0;
  const NodeId reader = graph.only_reader(node);
  return reader != 0 && fusion::options_at<BatchNormOptions>(graph, reader) != nullptr ? reader : 0;
}

bool masks_gradient(const Graph& graph, NodeId node, const Fusion& producer, const FusionTarget& target) {
  if (producer.pattern == nullptr || !producer.pattern->accepts_masked_gradient) return false;
  const auto* convolution = fusion::options_at<Conv2dOptions>(graph, node);
  if (convolution == nullptr || convolution->padding_mode != ops::PaddingMode::zeros) return false;
  const kernels::Conv2dShape shape = ops::conv2d_shape(graph.input_shapes(node)[0].prepend(1), convolution->filters,
                                                       fusion::window_of(*convolution), convolution->groups);
  const kernels::PointwiseShape product{shape.batch * shape.in_h * shape.in_w, shape.in_channels, shape.out_channels};
  if (!kernels::is_pointwise(shape) || !kernels::masked_gradient_supports(product, target.compute, target.device))
    return false;
  for (NodeId other = producer.last + 1; other < node; ++other)
    if (std::ranges::count(graph.node(other).inputs, producer.last) > 0) return false;
  return std::ranges::count(graph.node(node).inputs, producer.last) == 1;
}

}  // namespace bantam
