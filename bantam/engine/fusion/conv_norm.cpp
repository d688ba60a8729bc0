// Which convolutions give statistics.
#include "bantam/engine/fusion/conv_norm.h"

#include "bantam/engine/graph.h"
#include "bantam/engine/layers.h"

namespace bantam::fusion {

int norm_behind_conv(const Graph& graph, int node, const FusionTarget& target) {
  if (target.device != DeviceKind::cuda || !is_half(target.compute)) return 0;
  const auto layer = [&](NodeId at) -> const Layer& { return *graph.nodes()[static_cast<std::size_t>(at)].layer; };
  const auto* convolution = layer(node).options<Conv2dOptions>();
  if (convolution == nullptr || convolution->bias || convolution->activation.kind != kernels::Activation::none)
    return 0;
  const NodeId reader = graph.only_reader(node);
  return reader != 0 && layer(reader).options<BatchNormOptions>() != nullptr ? reader : 0;
}

}  // namespace bantam::fusion
