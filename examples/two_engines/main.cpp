// Two engines in one process: one device is split into two logical ones, each with a pool and a limit of its own. Two
// threads train two models there at the same time, to the bits that each has alone.
#include <cstdio>
#include <thread>

#include "bantam/bantam.h"

using namespace bantam;

namespace {

constexpr std::int64_t kBatch = 32;

Graph network(std::int64_t filters) {
  Graph graph({16, 16, 3});
  graph.add(conv2d({.filters = filters, .activation = {Activation::relu}}));
  graph.add(max_pool());
  graph.add(flatten());
  graph.add(dense({.units = 10}));
  return graph;
}

struct Engine {
  std::vector<float> weights;     // of the last layer, after training
  std::uint64_t peak_bytes = 0;   // in use on its device
  std::uint64_t limit_bytes = 0;  // of its device
};

/// All that one engine does: a model, its optimizer and 20 updates, on a device that nobody else uses.
Engine train(Runtime& runtime, Device device, std::int64_t filters) {
  Model model(runtime, device, network(filters), {.seed = 7});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  step.prepare({.batches = {kBatch}});
  const Context context = model.context(Pass::train);
  PhiloxSequence random(philox_key(7, RandomPurpose::dataset));
  std::vector<float> pixels(kBatch * 16 * 16 * 3);
  std::vector<std::int32_t> labels(kBatch);
  for (float& pixel : pixels) pixel = random.uniform();
  for (std::int32_t& label : labels) label = static_cast<std::int32_t>(random.below(10));
  const Tensor images =
      ops::cast(context, context.upload({kBatch, 16, 16, 3}, pixels.data()), context.precision.compute());
  const Batch batch{.tensors = {{kImages, images}, {kLabels, context.upload({kBatch}, labels.data())}}, .size = kBatch};
  for (int i = 0; i < 20; ++i) step.step(batch);
  return {to_host_floats(model.parameters().find("dense/weight")->master(), context.stream),
          runtime.allocator(device).stats().peak_bytes, runtime.limit(device)};
}

}  // namespace

int main() {
  const Device whole = cuda_device_count() > 0 ? Device::cuda() : Device::cpu();
  const std::uint64_t small = 8u << 20, large = 16u << 20;
  Runtime runtime({.logical = {{to_string(whole), {small, large}}}});
  Engine first, second;
  {
    const std::jthread one([&] { first = train(runtime, whole.logical(0), 8); });
    const std::jthread other([&] { second = train(runtime, whole.logical(1), 32); });
  }
  Runtime alone;
  const bool same =
      first.weights == train(alone, whole, 8).weights && second.weights == train(alone, whole, 32).weights;
  for (const Engine& engine : {first, second})
    std::printf("%.1f MB in use at the peak, within %.1f MB\n", static_cast<double>(engine.peak_bytes) / 1e6,
                static_cast<double>(engine.limit_bytes) / 1e6);
  std::printf("weights: %s\n", same ? "the same bits as alone" : "OTHER bits than alone");
  return same ? 0 : 1;
}
