// How each kind of layer is written as ONNX nodes: a table a file, by the layers' kinds.
#pragma once

#include <map>
#include <span>
#include <string_view>

#include "bantam/engine/layers/layers.h"
#include "bantam/models/onnx/graph_writer.h"

namespace bantam::onnx {

/// A layer of the graph and the values that it reads, to which a writer may add the order that it needs.
struct LayerInputs {
  const Layer& layer;
  std::span<LayerValue* const> values;
  Shape output;
  std::string description;  ///< for messages

  LayerValue& value() const { return *values[0]; }
  /// The options of the layer's factory. Throws ConfigError where it has others: a program's own layer of that
  /// kind.
  template <class Options>
  const Options& options() const {
    const Options* options = layer.options<Options>();
    if (options == nullptr) fail_without_options();
    return *options;
  }

 private:
  [[noreturn]] void fail_without_options() const;
};

using LayerWriter = LayerValue (*)(GraphWriter& writer, const LayerInputs& layer);
using LayerWriters = std::map<std::string_view, LayerWriter>;

LayerWriters convolution_writers();  ///< conv2d, depthwise, separable and transposed ones, dense
LayerWriters pool_writers();
LayerWriters norm_writers();
LayerWriters elementwise_writers();  ///< activation, softmax, prelu, layer_scale, and what inference passes on
LayerWriters image_writers();        ///< upsample, zero_padding, crop, depth_to_space, slices, channel_shuffle
LayerWriters join_writers();         ///< add, average, multiply, concat, squeeze_excite
LayerWriters attention_writers();
LayerWriters view_writers();  ///< flatten, reshape

/// f(x), in nodes of the opset. Returns x where f is the identity.
std::string write_activation(GraphWriter& writer, std::string x, const ActivationOptions& function);
/// x (batch, C, H, W) with `amounts` around it; negative ones crop, before the others are added.
std::string write_padding(GraphWriter& writer, std::string x, const Shape& image, const Padding& amounts,
                          ops::PaddingMode mode);
/// Weights w of a convolution of x, and the bias or an empty name.
struct ConvolutionNode {
  std::string x, weight, bias;
  Window2d window;  ///< with explicit padding
  std::int64_t groups = 1;
};
std::string write_convolution(GraphWriter& writer, const ConvolutionNode& node);

}  // namespace bantam::onnx
