// Rewriting a graph for inference: layers of training alone are left out, norms and activations become part of the
// layer before them.
#include "bantam/models/infer/fold_batch_norm.h"

#include <cmath>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/layers/norm_options.h"
#include "bantam/engine/model/frozen_norms.h"

namespace bantam {
namespace {

/// Values of a tensor in double precision, and back.
std::vector<double> values_of(const HostTensor& tensor) {
  const std::span<const float> floats = float_values(tensor);
  return {floats.begin(), floats.end()};
}

HostTensor tensor_of(const Shape& shape, const std::vector<double>& values) {
  return host_tensor(shape, std::vector<float>(values.begin(), values.end()));
}

/// All tensors of `graph`, as float32. Throws DataError for one that is missing, has another shape or integers, or is
/// none of the graph's.
std::map<std::string, HostTensor> checked_weights(const Graph& graph, const SafetensorsFile& weights) {
  ParameterArena parameters;
  BufferArena buffers;
  declare_tensors(graph, parameters, buffers);
  const std::string file = weights.path.empty() ? "weights" : weights.path;
  std::map<std::string, HostTensor> checked;
  const auto check = [&](const std::string& name, const Shape& shape) {
    const auto found = weights.tensors.find(name);
    if (found == weights.tensors.end())
      throw DataError(fmt::format("{}: tensor '{}' {} is missing", file, name, to_string(shape)));
    if (found->second.shape != shape)
      throw DataError(fmt::format("{}: tensor '{}': expected the shape {}, got {}", file, name, to_string(shape),
                                  to_string(found->second.shape)));
    const DType dtype = found->second.dtype;
    if (dtype != DType::float32 && dtype != DType::float64 && !is_half(dtype))
      throw DataError(
          fmt::format("{}: tensor '{}': expected floating-point numbers, got {}", file, name, to_string(dtype)));
    checked.emplace(name, to_float32(found->second));
  };
  for (const Parameter& parameter : parameters.all()) check(parameter.name(), parameter.shape());
  for (const Buffer& buffer : buffers.all()) check(buffer.name, buffer.shape);
  for (const auto& [name, tensor] : weights.tensors)
    if (!checked.contains(name))
      throw DataError(fmt::format("{}: tensor '{}' does not belong to this model", file, shown(name)));
  return checked;
}

/// Which output channel a weight's element belongs to.
struct ChannelOf {
  std::int64_t run = 1;       ///< elements side by side of one channel
  std::int64_t channels = 1;  ///< side by side, in turn
  std::int64_t block = 0;     ///< elements of one group, whose channels follow the last group's; 0: one group
  std::int64_t operator()(std::int64_t element) const {
    return element / run % channels + (block > 0 ? element / block * channels : 0);
  }
};

/// A layer that computes a linear function a channel before its activation: what folding changes of it.
struct LinearLayer {
  std::string weight;  ///< its tensor's short name
  ChannelOf channel;
  bool bias = false;
  LayerPtr folded;  ///< the layer with a bias and the activation
};

template <class Options>
LayerPtr with_bias(Options options, const ActivationOptions& activation, LayerPtr (*make)(Options)) {
  options.bias = true;
  options.activation = activation;
  return make(std::move(options));
}

/// The options of a layer that has no activation yet.
template <class Options>
const Options* open_options(const Layer& layer) {
  const auto* options = layer.options<Options>();
  return options != nullptr && options->activation.kind == Activation::none ? options : nullptr;
}

/// `layer`, which reads `in`, as a linear layer without activation; nothing where it is none.
std::optional<LinearLayer> linear_layer(const Layer& layer, const Shape& in, const ActivationOptions& activation) {
  if (const auto* conv = open_options<Conv2dOptions>(layer))
    return LinearLayer{"weight",
                       {conv->kernel.h * conv->kernel.w * (in[-1] / conv->groups), conv->filters},
                       conv->bias,
                       with_bias(*conv, activation, conv2d)};
  if (const auto* depthwise = open_options<DepthwiseConv2dOptions>(layer))
    return LinearLayer{"weight",
                       {1, in[-1] * depthwise->multiplier},
                       depthwise->bias,
                       with_bias(*depthwise, activation, depthwise_conv2d)};
  if (const auto* separable = open_options<SeparableConv2dOptions>(layer))
    return LinearLayer{"pointwise_weight",
                       {in[-1] * separable->multiplier, separable->filters},
                       separable->bias,
                       with_bias(*separable, activation, separable_conv2d)};
  if (const auto* transposed = open_options<TransposedConv2dOptions>(layer)) {
    const std::int64_t depth = transposed->filters / transposed->groups;
    return LinearLayer{"weight",
                       {1, depth, in[-1] / transposed->groups * transposed->kernel.h * transposed->kernel.w * depth},
                       transposed->bias,
                       with_bias(*transposed, activation, transposed_conv2d)};
  }
  if (const auto* product = open_options<DenseOptions>(layer))
    return LinearLayer{"weight", {in[-1], product->units}, product->bias, with_bias(*product, activation, dense)};
  return std::nullopt;
}

template <class Options>
LayerPtr with_activation(const Layer& layer, const ActivationOptions& activation, LayerPtr (*make)(Options)) {
  const auto* open = open_options<Options>(layer);
  if (open == nullptr) return nullptr;
  Options options = *open;
  options.activation = activation;
  return make(std::move(options));
}

/// `layer` with an activation at its end; null where it has one already, or can have none.
LayerPtr activated(const Layer& layer, const ActivationOptions& activation) {
  if (layer.kind() == "add") {
    const auto* options = layer.options<ActivationOptions>();
    return options != nullptr && options->kind == Activation::none ? add(activation) : nullptr;
  }
  for (LayerPtr made :
       {with_activation(layer, activation, conv2d), with_activation(layer, activation, depthwise_conv2d),
        with_activation(layer, activation, separable_conv2d), with_activation(layer, activation, transposed_conv2d),
        with_activation(layer, activation, dense), with_activation(layer, activation, batch_norm),
        with_activation(layer, activation, group_norm)})
    if (made != nullptr) return made;
  return nullptr;
}

bool is_training_layer(const Layer& layer) {
  const std::string_view kind = layer.kind();
  return layer.options<DropoutOptions>() != nullptr &&
         (kind == "dropout" || kind == "spatial_dropout" || kind == "drop_path");
}

/// A graph that is being rewritten: nodes that are left out stand for an earlier one.
class Rewriting {
 public:
  Rewriting(const Graph& graph, std::map<std::string, HostTensor> tensors)
      : graph_(graph), nodes_(graph.nodes()), stands_for_(nodes_.size()), tensors_(std::move(tensors)) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) stands_for_[i] = static_cast<NodeId>(i);
  }

  void leave_out_training_layers() {
    for (NodeId id = 1; id <= graph_.output(); ++id)
      if (is_training_layer(*node(id).layer)) leave_out(id);
  }

  int fold_norms() {
    int folded = 0;
    for (NodeId id = 1; id <= graph_.output(); ++id)
      if (is_there(id) && fold_norm(id)) ++folded;
    return folded;
  }

  void join_activations() {
    for (NodeId id = 1; id <= graph_.output(); ++id) {
      const GraphNode& last = node(id);
      const auto* activation = last.layer->options<ActivationOptions>();
      if (!is_there(id) || last.layer->kind() != "activation" || activation == nullptr) continue;
      const NodeId before = producer(id);
      if (before == 0 || readers(before) != 1) continue;
      LayerPtr layer = activated(*node(before).layer, *activation);
      if (layer == nullptr) continue;
      node(before).layer = std::move(layer);
      leave_out(id);
    }
  }

  Graph graph() const {
    Graph made(graph_.input_shape());
    std::vector<NodeId> now(nodes_.size(), 0);
    for (NodeId id = 1; id <= graph_.output(); ++id) {
      if (!is_there(id)) continue;
      const GraphNode& old = nodes_[static_cast<std::size_t>(id)];
      std::vector<NodeId> inputs;
      for (const NodeId input : old.inputs) inputs.push_back(now[static_cast<std::size_t>(resolve(input))]);
      now[static_cast<std::size_t>(id)] = made.add(old.name, old.layer, std::move(inputs));
    }
    // The last node is the output: where that was left out, and what it stands for is not last, a view follows.
    const NodeId output = now[static_cast<std::size_t>(resolve(graph_.output()))];
    if (output != made.output() || output == 0) made.add(graph_.node(graph_.output()).name, activation({}), {output});
    return made;
  }

  std::map<std::string, HostTensor> tensors() { return std::move(tensors_); }

 private:
  GraphNode& node(NodeId id) { return nodes_[static_cast<std::size_t>(id)]; }
  bool is_there(NodeId id) const { return stands_for_[static_cast<std::size_t>(id)] == id; }
  NodeId resolve(NodeId id) const {
    while (!is_there(id)) id = stands_for_[static_cast<std::size_t>(id)];
    return id;
  }
  NodeId producer(NodeId id) { return resolve(node(id).inputs[0]); }
  void leave_out(NodeId id) { stands_for_[static_cast<std::size_t>(id)] = producer(id); }

  /// How often a node's output is read, also as the graph's.
  int readers(NodeId id) const {
    int count = resolve(graph_.output()) == id ? 1 : 0;
    for (NodeId later = id + 1; later <= graph_.output(); ++later)
      if (is_there(later))
        for (const NodeId input : nodes_[static_cast<std::size_t>(later)].inputs)
          if (resolve(input) == id) ++count;
    return count;
  }

  /// w' = w·a, b' = b·a + (shift - mean·a) with a = scale/√(variance + ε), by output channel.
  bool fold_norm(NodeId id) {
    const auto* norm = batch_norm_options(*node(id).layer);
    const NodeId before = producer(id);
    if (norm == nullptr || before == 0 || readers(before) != 1) return false;
    GraphNode& layer = node(before);
    const std::optional<LinearLayer> linear =
        linear_layer(*layer.layer, nodes_[static_cast<std::size_t>(resolve(layer.inputs[0]))].output, norm->activation);
    if (!linear) return false;
    const std::int64_t channels = layer.output[-1];
    const std::vector<double> mean = removed(node(id).name + "/running_mean"),
                              variance = removed(node(id).name + "/running_variance");
    std::vector<double> factor(static_cast<std::size_t>(channels), 1.0), bias(factor.size(), 0.0);
    if (norm->scale) factor = removed(node(id).name + "/scale");
    if (linear->bias) bias = removed(layer.name + "/bias");
    std::vector<double> shift(factor.size(), 0.0);
    if (norm->shift) shift = removed(node(id).name + "/shift");
    for (std::size_t c = 0; c < factor.size(); ++c) {
      factor[c] /= std::sqrt(variance[c] + static_cast<double>(norm->epsilon));
      bias[c] = (bias[c] - mean[c]) * factor[c] + shift[c];
    }
    scale_weight(tensors_.at(layer.name + "/" + linear->weight), linear->channel, factor);
    tensors_[layer.name + "/bias"] = tensor_of({channels}, bias);
    layer.layer = linear->folded;
    leave_out(id);
    return true;
  }

  static void scale_weight(HostTensor& weight, const ChannelOf& channel, const std::vector<double>& factor) {
    std::vector<double> values = values_of(weight);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] *= factor[static_cast<std::size_t>(channel(static_cast<std::int64_t>(i)))];
    weight = tensor_of(weight.shape, values);
  }

  std::vector<double> removed(const std::string& name) { return values_of(tensors_.extract(name).mapped()); }

  const Graph& graph_;
  std::vector<GraphNode> nodes_;
  std::vector<NodeId> stands_for_;
  std::map<std::string, HostTensor> tensors_;
};

}  // namespace

InferenceGraph fold_for_inference(const Graph& graph, const SafetensorsFile& weights) {
  Rewriting rewriting(graph, checked_weights(graph, weights));
  rewriting.leave_out_training_layers();
  const int folded = rewriting.fold_norms();
  rewriting.join_activations();
  return {.graph = rewriting.graph(),
          .weights = {.tensors = rewriting.tensors(), .metadata = weights.metadata},
          .folded = folded};
}

}  // namespace bantam
