// Choice of the convolutions that compute the statistics of the norm after them.
#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/fusion/match.h"
#include "bantam/engine/ops/conv2d.h"
#include "bantam/kernels/conv/conv2d_statistics.h"

namespace bantam {

NodeId norm_after_conv(const Graph& graph, NodeId node, const FusionTarget& target) {
  if (target.device != DeviceKind::cuda) return 0;
  const auto* convolution = fusion::options_at<Conv2dOptions>(graph, node);
  if (convolution == nullptr || convolution->bias || convolution->activation.kind != Activation::none ||
      convolution->padding_mode != ops::PaddingMode::zeros)
    return 0;
  const kernels::Conv2dShape shape = ops::conv2d_shape(graph.input_shapes(node)[0].prepend(1), convolution->filters,
                                                       fusion::window_of(*convolution), convolution->groups);
  if (!kernels::conv2d_writes_statistics(shape, target.compute)) return 0;
  const NodeId reader = graph.only_reader(node);
  return reader != 0 && fusion::options_at<BatchNormOptions>(graph, reader) != nullptr ? reader : 0;
}

}  // namespace bantam
