// One training step of a network without dropout: what compare_with_torch.py compares with PyTorch's.
//
//   zoo_gradients MODEL INPUT.safetensors OUTPUT.safetensors [DEVICE [PRECISION]]
//
// MODEL is a configuration's `model` in one line ("{zoo: resnet18, classes: 10}"). INPUT has its parameters, its
// running statistics, `images` and `labels`; OUTPUT gets `loss`, the gradients by the parameters' names, and the
// running statistics after the step.
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "bantam/engine/layers/layers.h"
#include "bantam/engine/optimizers/optimizer.h"
#include "bantam/engine/step/training_step.h"
#include "bantam/engine/train/safetensors.h"
#include "tests/models/yaml/model_text.h"

namespace bantam::models {
namespace {

LayerPtr without_drop(const LayerPtr& layer) {
  if (layer->kind() == "dropout") return dropout({.rate = 0.0f});
  if (layer->kind() == "drop_path") return drop_path({.rate = 0.0f});
  return layer;
}

/// The same nodes, with dropout and stochastic depth at rate 0.
Graph without_drops(const Graph& graph) {
  Graph result(graph.input_shape());
  for (std::size_t i = 1; i < graph.nodes().size(); ++i) {
    const GraphNode& node = graph.nodes()[i];
    result.add(node.name, without_drop(node.layer), node.inputs);
  }
  return result;
}

/// Moves the weights out of `file`, which has more, by way of a file of their own, as a user's program would load them.
void load(Model& model, SafetensorsFile& file, const std::string& path) {
  SafetensorsFile weights;
  for (const auto& [name, tensor] : file.tensors)
    if (name != "images" && name != "labels") weights.tensors.emplace(name, tensor);
  write_safetensors(path, weights);
  load_weights(model, path);
}

Batch batch_of(const Model& model, const SafetensorsFile& file) {
  const HostTensor &images = file.tensors.at("images"), &labels = file.tensors.at("labels");
  const Context context = model.context(Pass::train);
  const Tensor floats = context.upload(images.shape, reinterpret_cast<const float*>(images.bytes.data()));
  Batch batch{.size = images.shape[0]};
  batch.tensors.set(kImages, ops::cast(context, floats, context.precision.compute()));
  batch.tensors.set(kLabels, context.upload(labels.shape, reinterpret_cast<const std::int32_t*>(labels.bytes.data())));
  return batch;
}

HostTensor host_tensor(const Shape& shape, const std::vector<float>& values) {
  HostTensor tensor{.shape = shape, .bytes = std::vector<std::byte>(values.size() * sizeof(float))};
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

/// A step whose update moves no weight, so that the gradients are those of the weights in the file.
SafetensorsFile run_step(Model& model, const Batch& batch) {
  constexpr float kLossScale = 1024.0f;
  Optimizer optimizer(model, {.rule = sgd({.learning_rate = 0.0f}), .initial_loss_scale = kLossScale});
  TrainingStep step(model, optimizer, {});
  step.prepare({.batches = {batch.size}});
  step.step(batch);
  const Stream stream = model.context(Pass::train).stream;
  SafetensorsFile file;
  file.tensors.emplace("loss", host_tensor({1}, {static_cast<float>(step.read_metrics().back().loss)}));
  const bool scaled = model.options().precision.kind == PrecisionKind::mixed_float16;
  for (const Parameter& parameter : model.parameters().all()) {
    std::vector<float> values = to_host<float>(parameter.gradient(), stream);
    for (float& value : values) value /= scaled ? kLossScale : 1.0f;
    file.tensors.emplace(parameter.name(), host_tensor(parameter.shape(), values));
  }
  for (const Buffer& buffer : model.buffers().all())
    file.tensors.emplace(buffer.name,
                         host_tensor(buffer.shape, to_host<float>(model.buffers().current(buffer), stream)));
  return file;
}

void run(const std::vector<std::string>& arguments) {
  const ModelSpec spec = model_from("model: " + arguments[0]);
  SafetensorsFile input = read_safetensors(arguments[1]);
  Runtime runtime({.threads = 2});
  const Device device = arguments.size() > 3 ? parse_device(arguments[3]) : Device::cpu();
  const Precision precision = parse_precision(arguments.size() > 4 ? arguments[4] : "float32", device);
  Model model(runtime, device, without_drops(spec.graph), {.precision = precision});
  load(model, input, arguments[2]);
  write_safetensors(arguments[2], run_step(model, batch_of(model, input)));
}

}  // namespace
}  // namespace bantam::models

int main(int count, char** arguments) {
  if (count < 4 || count > 6) {
    std::fprintf(stderr, "zoo_gradients MODEL INPUT.safetensors OUTPUT.safetensors [DEVICE [PRECISION]]\n");
    return 2;
  }
  try {
    bantam::models::run({arguments + 1, arguments + count});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "zoo_gradients: %s\n", error.what());
    return 1;
  }
  return 0;
}
