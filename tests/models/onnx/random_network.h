// Shared by the tests of ONNX files: networks with weights as they are after training, and what they compute.
#pragma once

#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "bantam/base/philox.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/model/model.h"
#include "bantam/engine/train/safetensors.h"

namespace bantam::models {

inline HostTensor host_tensor(const Shape& shape, const std::vector<float>& values) {
  return bantam::host_tensor(shape, std::span(values));
}

inline std::vector<float> floats_of(const HostTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

inline std::vector<float> uniform(std::int64_t count, float low, float high, std::uint64_t seed) {
  PhiloxSequence random(philox_key(seed, RandomPurpose::dataset, 7));
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = random.uniform(low, high);
  return values;
}

/// The same nodes without dropout, and with batch norms whose running statistics become those of the last batch.
inline Graph calibration_graph(const Graph& graph) {
  Graph result(graph.input_shape());
  for (std::size_t i = 1; i < graph.nodes().size(); ++i) {
    const GraphNode& node = graph.nodes()[i];
    LayerPtr layer = node.layer;
    if (const auto* norm = layer->options<BatchNormOptions>()) {
      BatchNormOptions options = *norm;
      options.rate = 1.0f;
      layer = batch_norm(options);
    }
    if (layer->options<DropoutOptions>() != nullptr) layer = dropout({.rate = 0.0f});
    result.add(node.name, layer, node.inputs);
  }
  return result;
}

/// Whether the parameter is the scale of a norm at the end of a residual branch. Training keeps them small (Goyal et
/// al., 2017): deep networks with large ones amplify every rounding.
inline bool ends_branch(const Graph& graph, const std::string& parameter) {
  for (NodeId node = 1; node < graph.output(); ++node)
    if (graph.node(node).name + "/scale" == parameter) {
      const NodeId reader = graph.only_reader(node);
      return reader != 0 && graph.node(reader).layer->kind() == "add" && !parameter.ends_with("shortcut_norm/scale");
    }
  return false;
}

/// Values of vectors, which are constants where training begins; weights keep their initial values.
inline void set_vectors(Model& model) {
  std::uint64_t seed = 100;
  for (Parameter& parameter : model.parameters().all()) {
    const std::string& name = parameter.name();
    float low = 0.0f, high = 0.0f;
    if (name.ends_with("/scale")) low = 0.1f, high = ends_branch(model.graph(), name) ? 0.2f : 0.5f;
    if (name.ends_with("/shift") || name.ends_with("bias")) low = -0.3f, high = 0.3f;
    if (name.ends_with("/slope")) low = -0.3f, high = 0.6f;
    if (low == high) continue;
    const std::vector<float> values = uniform(parameter.shape().elements(), low, high, ++seed);
    std::memcpy(parameter.value().data(), values.data(), values.size() * sizeof(float));
  }
}

inline Tensor images_on(const Context& context, const Graph& graph, const std::vector<float>& images) {
  const Shape& input = graph.input_shape();
  return context.upload(input.prepend(static_cast<std::int64_t>(images.size()) / input.elements()), images.data());
}

/// Random weights; running statistics near those of `images`, as after training, but not the same.
inline SafetensorsFile random_weights(Runtime& runtime, const Graph& graph, const std::vector<float>& images) {
  Model model(runtime, Device::cpu(), calibration_graph(graph), {});
  set_vectors(model);
  const Context context = model.context(Pass::train);
  model.forward(context, images_on(context, graph, images));
  SafetensorsFile file;
  for (Parameter& parameter : model.parameters().all())
    file.tensors.emplace(parameter.name(),
                         host_tensor(parameter.shape(), to_host<float>(parameter.value(), context.stream)));
  std::uint64_t seed = 900;
  for (const Buffer& buffer : model.buffers().all()) {
    std::vector<float> values = to_host<float>(model.buffers().next(buffer), context.stream);
    const bool variance = buffer.name.ends_with("running_variance");
    const std::vector<float> changes =
        uniform(buffer.shape.elements(), variance ? 0.7f : -0.1f, variance ? 1.4f : 0.1f, ++seed);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = variance ? values[i] * changes[i] + 1e-3f : values[i] + changes[i];
    file.tensors.emplace(buffer.name, host_tensor(buffer.shape, values));
  }
  return file;
}

/// What the network computes in evaluation, float32 on the CPU.
inline std::vector<float> outputs_of(Runtime& runtime, const Graph& graph, const SafetensorsFile& weights,
                                     const std::vector<float>& images) {
  Model model(runtime, Device::cpu(), graph, {});
  if (!weights.tensors.empty()) load_weights(model, weights, "weights", {});
  const Context context = model.context(Pass::evaluate);
  return to_host<float>(model.forward(context, images_on(context, graph, images)), context.stream);
}

}  // namespace bantam::models
