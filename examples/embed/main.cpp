// Bantam inside a C++ program: a small network with a layer of one's own, a training loop of one's own, and what memory
// it took.
#include <cstdio>
#include <filesystem>

#include "bantam/bantam.h"

using namespace bantam;

namespace {

/// A layer of one's own: the sum of maximum and average of each 2x2 window. What a layer has to override is here; what
/// else it may declare stands in engine/layers/layer.h.
class MixedPool : public Layer {
 public:
  std::string_view kind() const override { return "mixed_pool"; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    if (inputs.size() != 1 || inputs[0].rank() != 3)
      throw ShapeError("mixed_pool: expected one input (height, width, channels)");
    return {inputs[0][0] / 2, inputs[0][1] / 2, inputs[0][2]};
  }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    struct Bound : BoundLayer {
      Tensor forward(const Context& context, std::span<Tensor> inputs) override {
        const Window2d window{.kernel = {2, 2}, .stride = {2, 2}};
        return ops::add(context, ops::max_pool2d(context, inputs[0], window),
                        ops::avg_pool2d(context, inputs[0], window));
      }
    };
    return std::make_unique<Bound>();
  }
  /// Plans are made by running forward and backward on a meta device, whose tensors have addresses but no memory. Ops
  /// do nothing there. A forward that reads or writes its tensors itself, on the host or by kernels of its own, must
  /// check `context.device.meta` to say so; where it does not say so, it is never run there, and steps are planned from
  /// their first run.
  bool supports_meta() const override { return true; }
};

}  // namespace

int main() {
  const Device device = cuda_device_count() > 0 ? Device::cuda() : Device::cpu();
  Runtime runtime({.limits = {{to_string(device), 1u << 30}}});  // 1 GiB, and not a byte more

  Graph graph({8, 8, 3});
  graph.add(separable_conv2d({.filters = 16, .activation = {Activation::relu}}));
  graph.add(std::make_shared<MixedPool>());
  graph.add(flatten());
  graph.add(dense({.units = 4}));
  Model model(runtime, device, graph, {.precision = parse_precision("auto", device), .seed = 1});
  Optimizer optimizer(model, {.rule = adam({.learning_rate = 3e-3f})});
  TrainingStep step(model, optimizer, {});
  step.prepare({.batches = {64}});  // steps of 64 images run planned: at offsets of one arena, solved beforehand

  // 64 images whose brightest quadrant is the class.
  const Context context = model.context(Pass::train);
  std::vector<float> pixels(64 * 8 * 8 * 3);
  std::vector<std::int32_t> labels(64);
  PhiloxSequence random(philox_key(1, RandomPurpose::dataset));
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const std::size_t sample = i / 192, row = i % 192 / 24, column = i % 24 / 3;
    labels[sample] = static_cast<std::int32_t>(sample % 4);
    pixels[i] = random.uniform() + ((row / 4) * 2 + column / 4 == sample % 4 ? 1.0f : 0.0f);
  }
  const Tensor images = ops::cast(context, context.upload({64, 8, 8, 3}, pixels.data()), context.precision.compute());
  const Batch batch{.tensors = {{kImages, images}, {kLabels, context.upload({64}, labels.data())}}, .size = 64};

  double accuracy = 0;
  for (int i = 0; i < 60; ++i) {
    step.step(batch);
    if (i % 10 != 9) continue;
    const Metrics metrics = step.read_metrics().back();
    std::printf("step %2d  loss %.4f  accuracy %.3f\n", i + 1, metrics.loss, accuracy = metrics.accuracy);
  }
  // Predict: forward without a tape. Weights are saved in the safetensors format, and read by load_weights.
  const Tensor logits = model.forward(model.context(Pass::evaluate), images);
  const std::vector<float> first = to_host_floats(logits.slice(0, {4}), context.stream);
  std::printf("logits of the first image: %.2f %.2f %.2f %.2f\n", first[0], first[1], first[2], first[3]);
  save_weights(model, std::filesystem::temp_directory_path() / "bantam-embed.safetensors");

  const MemoryStats memory = runtime.allocator(device).stats();
  std::printf("%s: peak %llu bytes in use, %llu bytes reserved\n", to_string(device).c_str(),
              static_cast<unsigned long long>(memory.peak_bytes),
              static_cast<unsigned long long>(memory.peak_pool_bytes));
  return accuracy > 0.9 ? 0 : 1;
}
