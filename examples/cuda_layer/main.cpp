// A layer with a CUDA kernel of the program's own: squared ReLU, y = max(x, 0)² (So et al. 2021). It runs on the GPU
// where there is one, by own_kernels.cu, else on the CPU; planned and captured steps include it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "bantam/bantam.h"
#include "own_kernels.h"

using namespace bantam;

namespace {

// One pass on the tensors' device. On a meta device there is no memory, so nothing runs: that is the promise of
// `supports_meta`. On a GPU the work goes to the context's stream, and the host does not wait: so it can be captured.
template <class OnHost, class OnGpu>
void run(const Context& context, std::int64_t elements, OnHost on_host, OnGpu on_gpu) {
  if (context.device.meta) return;
  if (context.device.is_cpu()) {
    for (std::int64_t i = 0; i < elements; ++i) on_host(i);
    return;
  }
  const DeviceScope current(context.device);
  if (const int code = on_gpu(context.stream.handle); code != 0)
    throw CudaError("squared_relu: the kernel's launch failed with code " + std::to_string(code));
}

/// Recorded on the tape: dx = dy · 2·max(x, 0).
Tensor squared_relu(const Context& context, const Tensor& x) {
  if (x.dtype() != DType::float32) throw DTypeError("squared_relu: expected float32");
  Tensor y = context.allocate(x.shape(), x.dtype());
  const auto* in = x.as<float>();
  auto* out = y.as<float>();
  const auto on_host = [=](std::int64_t i) { out[i] = std::max(in[i], 0.0f) * std::max(in[i], 0.0f); };
  run(context, x.elements(), on_host,
      [&](void* stream) { return squared_relu_forward(in, out, x.elements(), stream); });
  if (!records(context, {&x})) return y;  // evaluation: nobody wants gradients
  context.tape->record(context, y, [x](const Context& ctx, const Tensor& dy, GradientStore& store) {
    const Tensor dx = ctx.allocate(x.shape(), x.dtype());
    const auto *above = dy.as<float>(), *in = x.as<float>();
    auto* to = dx.as<float>();
    const auto on_host = [=](std::int64_t i) { to[i] = above[i] * 2.0f * std::max(in[i], 0.0f); };
    run(ctx, x.elements(), on_host,
        [&](void* stream) { return squared_relu_backward(above, in, to, x.elements(), stream); });
    store.add(ctx, x, dx);
  });
  return y;
}

class SquaredRelu : public Layer {
 public:
  std::string_view kind() const override { return "squared_relu"; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    if (inputs.size() != 1) throw ShapeError("squared_relu: expected one input");
    return inputs[0];
  }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    struct Bound : BoundLayer {
      Tensor forward(const Context& context, std::span<Tensor> inputs) override {
        return squared_relu(context, inputs[0]);
      }
    };
    return std::make_unique<Bound>();
  }
  bool supports_meta() const override { return true; }
};

/// Whether dx of Σ y is 2·max(x, 0) on this device.
bool gradient_is_right(Runtime& runtime, Device device) {
  Context context = Context::make(runtime, device);
  Tape tape;
  context.tape = &tape;
  const std::vector<float> values = {-2.0f, -0.5f, 0.0f, 0.25f, 1.5f}, ones(5, 1.0f);
  Tensor x = context.upload({5}, values.data());
  x.set_value_id(runtime.new_value_id());  // a leaf whose gradient is wanted
  const Tensor y = squared_relu(context, x);
  const Tensor dx = tape.backward(context, y, context.upload({5}, ones.data())).pop(x.value_id());
  const std::vector<float> found = to_host_floats(dx, context.stream);
  for (std::size_t i = 0; i < 5; ++i)
    if (found[i] != 2.0f * std::max(values[i], 0.0f)) return false;
  return true;
}

/// Trains on 64 images whose brighter half is their class; returns the accuracy.
double train(Runtime& runtime, Device device) {
  Graph graph({8, 8, 1});
  graph.add(conv2d({.filters = 8}));
  graph.add(std::make_shared<SquaredRelu>());
  graph.add(flatten());
  graph.add(dense({.units = 2}));
  Model model(runtime, device, graph, {.seed = 1});
  Optimizer optimizer(model, {.rule = adam({.learning_rate = 3e-3f})});
  TrainingStep step(model, optimizer, {});
  step.prepare({.batches = {64}});
  PhiloxSequence random(philox_key(1, RandomPurpose::dataset));
  std::vector<float> pixels(64 * 64);
  std::vector<std::int32_t> labels(64);
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    labels[i / 64] = static_cast<std::int32_t>(i / 64 % 2);
    pixels[i] = random.uniform() + ((i % 64 < 32) == (labels[i / 64] == 0) ? 0.3f : 0.0f);
  }
  const Context context = model.context(Pass::train);
  const Batch batch{.tensors = {{kImages, context.upload({64, 8, 8, 1}, pixels.data())},
                                {kLabels, context.upload({64}, labels.data())}},
                    .size = 64};
  for (int i = 0; i < 60; ++i) step.step(batch);
  return step.read_metrics().back().accuracy;
}

}  // namespace

int main() {
  try {
    const Device device = own_kernels_are_built() && cuda_device_count() > 0 ? Device::cuda() : Device::cpu();
    Runtime runtime;
    const bool right = gradient_is_right(runtime, device);
    const double accuracy = train(runtime, device);
    std::printf("%s: gradient %s, accuracy %.3f\n", to_string(device).c_str(), right ? "right" : "WRONG", accuracy);
    return right && accuracy > 0.9 ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
