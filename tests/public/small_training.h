// A small training that a program makes through bantam/bantam.h alone: what the tests of guarantees repeat, let fail
// and run beside itself.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <unistd.h>

#include "bantam/bantam.h"

namespace bantam::testing {

/// Convolutions, batch normalisation, pool and dense layers: parameters and buffers.
inline Graph small_network(std::int64_t filters = 4) {
  Graph graph({8, 8, 2});
  graph.add("depthwise", depthwise_conv2d({.padding = Padding::same()}));
  graph.add("conv", conv2d({.filters = filters, .padding = Padding::same(), .bias = false}));
  graph.add("norm", batch_norm({.activation = {Activation::relu}}));
  graph.add("pool", max_pool());
  graph.add("flat", flatten());
  graph.add("head", dense({.units = 3}));
  return graph;
}

/// 16 samples of noise in the context's compute type, a pure function of `seed`.
inline Batch small_batch(const Context& context, std::uint64_t seed) {
  constexpr std::int64_t kSize = 16;
  PhiloxSequence random(philox_key(seed, RandomPurpose::test));
  std::vector<float> pixels(kSize * 8 * 8 * 2);
  std::vector<std::int32_t> labels(kSize);
  for (float& pixel : pixels) pixel = random.uniform(-1.0f, 1.0f);
  for (std::int32_t& label : labels) label = static_cast<std::int32_t>(random.below(3));
  const Tensor images =
      ops::cast(context, context.upload({kSize, 8, 8, 2}, pixels.data()), context.precision.compute());
  return {.tensors = {{kImages, images}, {kLabels, context.upload({kSize}, labels.data())}}, .size = kSize};
}

/// Makes a model of (8, 8, 2) and 3 classes on the device, trains it for `updates` updates, and returns every weight.
inline std::vector<float> train_network(Runtime& runtime, Device device, const Graph& graph, int updates,
                                        std::uint64_t seed) {
  Model model(runtime, device, graph, {.seed = seed});
  Optimizer optimizer(model, {.rule = adam({.learning_rate = 1e-2f})});
  TrainingStep step(model, optimizer, {});
  step.prepare({.batches = {16}});
  const Context context = model.context(Pass::train);
  const Batch batch = small_batch(context, seed);
  for (int i = 0; i < updates; ++i) step.step(batch);
  step.read_metrics();
  return to_host_floats(model.parameters().master(), context.stream);
}

/// The same of small_network.
inline std::vector<float> train_small(Runtime& runtime, Device device, int updates, std::uint64_t seed = 1,
                                      std::int64_t filters = 4) {
  return train_network(runtime, device, small_network(filters), updates, seed);
}

/// A path of this process alone, below the folder for temporary files, removed with the object.
class ScratchPath {
 public:
  explicit ScratchPath(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / ("bantam_" + name + "_" + std::to_string(getpid()))) {}
  ~ScratchPath() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchPath(const ScratchPath&) = delete;
  ScratchPath& operator=(const ScratchPath&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// A whole run that needs no files: generated images, one epoch of eight updates on the CPU.
inline constexpr const char* kSmallRun = R"(
seed: 1
device: cpu
data:
  format: generated
  train_samples: 64
  test_samples: 16
  pipeline: [shuffle: {}, random_flip: {}, normalize: {scale: 0.0039}, batch: {size: 8}]
model:
  input: [32, 32, 3]
  layers:
    - conv2d: {filters: 4, kernel: 3, stride: 4, bias: false}
    - batch_norm: {activation: relu}
    - global_average_pool
    - dense: {units: 10}
train: {epochs: 1, optimizer: {adam: {learning_rate: 0.01}}}
)";

}  // namespace bantam::testing
