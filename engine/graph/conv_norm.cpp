// Which convolutions compute the statistics of the norm after them.
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/graph/patterns.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/ops/conv2d.h"
#include "bantam/kernels/conv/conv2d_statistics.h"

namespace bantam::fusion {
namespace {

/// What the layer runs on one sample (height, width, channels).
kernels::Conv2dShape shape_of(const Conv2dOptions& options, const Shape& in) {
  return ops::conv2d_shape({1, in[0], in[1], in[2]}, options.filters,
                           {options.kernel, options.stride, options.dilation, options.padding}, options.groups);
}

}  // namespace

NodeId norm_after_conv(const Graph& graph, NodeId node, const FusionTarget& target) {
  if (target.device != DeviceKind::cuda) return 0;
  const auto layer = [&](NodeId at) -> const Layer& { return *graph.node(at).layer; };
  const auto* convolution = layer(node).options<Conv2dOptions>();
  if (convolution == nullptr || convolution->bias || convolution->activation.kind != Activation::none ||
      convolution->padding_mode != ops::PaddingMode::zeros)
    return 0;
  if (!kernels::conv2d_writes_statistics(shape_of(*convolution, graph.input_shapes(node)[0]), target.compute)) return 0;
  const NodeId reader = graph.only_reader(node);
  return reader != 0 && layer(reader).options<BatchNormOptions>() != nullptr ? reader : 0;
}

}  // namespace bantam::fusion
