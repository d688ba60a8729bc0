// Choice of the convolutions that compute the statistics of the norm after them, and of those that multiply the
// gradient of the sum before them by relu'.
#include <algorithm>

#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/fusion/match.h"
#include "bantam/engine/ops/conv2d.h"
#include "bantam/kernels/conv/conv2d_pointwise.h"
#include "bantam/kernels/conv/conv2d_statistics.h"
#include "bantam/kernels/pointwise/masked_gradient.h"

namespace bantam {

NodeId norm_after_conv(const Graph& graph, NodeId node, const FusionTarget& target) {
  if (target.device != DeviceKind::cuda) return 0;
  const auto* convolution = fusion::options_at<Conv2dOptions>(graph, node);
  if (convolution == nullptr || convolution->bias || convolution->activation.kind != Activation::none ||
      convolution->padding_mode != ops::PaddingMode::zeros)
    return 0;
  const kernels::Conv2dShape shape = fusion::conv2d_shape_at(graph, node, *convolution);
  if (!kernels::conv2d_writes_statistics(shape, target.compute)) return 0;
  const NodeId reader = graph.only_reader(node);
  return reader != 0 && fusion::options_at<BatchNormOptions>(graph, reader) != nullptr ? reader : 0;
}

bool masks_gradient(const Graph& graph, NodeId node, const Fusion& producer, const FusionTarget& target) {
  if (producer.pattern == nullptr || !producer.pattern->accepts_masked_gradient) return false;
  const auto* convolution = fusion::options_at<Conv2dOptions>(graph, node);
  if (convolution == nullptr || convolution->padding_mode != ops::PaddingMode::zeros) return false;
  const kernels::Conv2dShape shape = fusion::conv2d_shape_at(graph, node, *convolution);
  if (!kernels::is_pointwise(shape) ||
      !kernels::masked_gradient_supports(kernels::pointwise_shape(shape), target.compute, target.device))
    return false;
  for (NodeId other = producer.last + 1; other < node; ++other)
    if (std::ranges::count(graph.node(other).inputs, producer.last) > 0) return false;
  return std::ranges::count(graph.node(node).inputs, producer.last) == 1;
}

}  // namespace bantam
