// An imported network on a device, and what it computes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bantam/engine/autograd/tensor.h"
#include "bantam/engine/model/model.h"
#include "bantam/engine/train/safetensors.h"
#include "bantam/models/onnx/onnx_import.h"
#include "bantam/models/yaml/network.h"

namespace bantam::onnx::testing {

/// Each line two columns further right: below `model:`.
inline std::string indented(const std::string& yaml) {
  std::string text = "  ";
  for (std::size_t i = 0; i < yaml.size(); ++i) {
    text += yaml[i];
    if (yaml[i] == '\n' && i + 1 < yaml.size()) text += "  ";
  }
  return text;
}

inline Graph graph_of(const ImportedNetwork& network) {
  const ConfigDocument document = ConfigDocument::parse("model:\n" + indented(network.yaml), "imported.yaml");
  return models::read_model(document.map().node("model")).graph;
}

/// On the CPU, with its weights, all of which the network must use.
inline std::unique_ptr<bantam::Model> bound(Runtime& runtime, const ImportedNetwork& network) {
  auto model = std::make_unique<bantam::Model>(runtime, Device::cpu(), graph_of(network), ModelOptions{});
  if (!network.weights.tensors.empty()) load_weights(*model, network.weights, "imported.safetensors", {});
  return model;
}

/// Of a batch of inputs, one after the other.
inline std::vector<float> outputs_of(bantam::Model& model, const std::vector<float>& inputs) {
  const Context context = model.context(Pass::evaluate);
  const Shape shape = model.graph().input_shape();
  const auto batch = static_cast<std::int64_t>(inputs.size()) / shape.elements();
  return to_host<float>(model.forward(context, context.upload(shape.prepend(batch), inputs.data())), context.stream);
}

}  // namespace bantam::onnx::testing
