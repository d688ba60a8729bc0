// Weights of a graph for tests of inference: as initialised, but with statistics, scales and shifts that are all
// different.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bantam/base/philox.h"
#include "bantam/engine/model/model.h"
#include "bantam/engine/train/safetensors.h"

namespace bantam::testing {

inline std::vector<float> host_values(const Tensor& tensor, Stream stream) {
  std::vector<float> values(static_cast<std::size_t>(tensor.shape().elements()));
  copy_bytes(values.data(), tensor.data(), values.size() * sizeof(float), stream);
  synchronize(stream);
  return values;
}

/// All parameters and buffers of `graph`: weights of convolutions and products as their initialisers draw them,
/// vectors uniform in ranges that keep values of a deep network near 1.
inline SafetensorsFile random_weights(const Graph& graph, std::uint64_t seed) {
  Runtime runtime{{.threads = 2}};
  Model model(runtime, Device::cpu(), graph, {.seed = seed});
  const Stream stream = runtime.stream(Device::cpu());
  SafetensorsFile file;
  const auto set = [&](const std::string& name, const Tensor& tensor) {
    std::vector<float> values = host_values(tensor, stream);
    PhiloxSequence random(philox_key(seed, RandomPurpose::test, hash_name(name)));
    const auto fill = [&](float low, float high) {
      for (float& value : values) value = random.uniform(low, high);
    };
    if (name.ends_with("/scale")) fill(0.7f, 1.3f);
    if (name.ends_with("/shift") || name.ends_with("/bias") || name.ends_with("/running_mean")) fill(-0.3f, 0.3f);
    if (name.ends_with("/running_variance")) fill(0.6f, 1.6f);
    file.tensors.emplace(name, host_tensor(tensor.shape(), values));
  };
  for (const Parameter& parameter : model.parameters().all()) set(parameter.name(), parameter.master());
  for (const Buffer& buffer : model.buffers().all()) set(buffer.name, model.buffers().current(buffer));
  return file;
}

/// What `graph` computes of `samples` inputs in evaluation, as a Model does.
inline std::vector<float> evaluated(Runtime& runtime, Device device, const Graph& graph, const SafetensorsFile& weights,
                                    const std::vector<float>& inputs, Precision precision = {}, bool fusion = true) {
  Model model(runtime, device, graph, {.precision = precision, .fusion = fusion});
  if (!weights.tensors.empty()) (void)load_weights(model, weights, "test", {});
  const Context context = model.context(Pass::evaluate);
  const std::int64_t samples = static_cast<std::int64_t>(inputs.size()) / graph.input_shape().elements();
  const Tensor x = context.upload(graph.input_shape().prepend(samples), inputs.data());
  const Tensor y = model.forward(context, ops::cast(context, x, precision.compute()));
  return host_values(ops::cast(context, y, DType::float32), context.stream);
}

}  // namespace bantam::testing
