// Two layers of a program's own that train: one composed of the engine's ops, one that records its own backward. Both
// have a parameter, both are named by a configuration, and both gradients are compared with finite differences.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <vector>

#include "bantam/bantam.h"

using namespace bantam;

namespace {

// A layer composed of ops: y[…, c] = scale[c]·x[…, c], LayerScale of Touvron et al. 2021. A depthwise convolution with
// a 1x1 kernel computes it, and records its backward, on every device and in every precision.
class LayerScale : public Layer {
 public:
  explicit LayerScale(float initial) : initial_(initial) {}
  std::string_view kind() const override { return "my_layer_scale"; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    if (inputs.size() != 1 || inputs[0].rank() != 3)
      throw ShapeError("my_layer_scale: expected one input (height, width, channels)");
    return inputs[0];
  }
  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena&, std::span<const Shape> inputs) const override {
    return std::make_unique<Bound>(scope.parameter("scale", {1, 1, inputs[0][2]}, constant(initial_)));
  }
  bool supports_meta() const override { return true; }  // ops only

 private:
  struct Bound : BoundLayer {
    explicit Bound(Parameter& parameter) : scale(parameter) {}
    Tensor forward(const Context& context, std::span<Tensor> inputs) override {
      return ops::depthwise_conv2d(context, inputs[0], scale.value());
    }
    Parameter& scale;
  };
  float initial_;
};

// Runs f on the host with the values of `tensors` and returns its result as a tensor of the first one's type. On a meta
// device a tensor has no values: there its memory is allocated, and nothing is computed.
template <class Function>
Tensor on_host(const Context& context, std::initializer_list<Tensor> tensors, const Shape& shape, Function f) {
  const DType dtype = tensors.begin()->dtype();
  std::vector<float> result(static_cast<std::size_t>(shape.elements()));
  if (!context.device.meta) {
    std::vector<std::vector<float>> values;
    for (const Tensor& tensor : tensors) values.push_back(to_host_floats(tensor, context.stream));
    f(values, result);
  }
  return ops::cast(context, context.upload(shape, result.data(), Category::activation), dtype);
}

// y[…, c] = x where x > 0, else slope[c]·x: PReLU, He et al. 2015. Recorded on the tape:
//   dx = dy where x > 0, else slope·dy;   dslope[c] = Σ dy·x over all x[…, c] ≤ 0.
Tensor prelu(const Context& context, const Tensor& x, const Tensor& slope) {
  const auto channels = static_cast<std::size_t>(slope.elements());
  Tensor y = on_host(context, {x, slope}, x.shape(), [=](const auto& in, std::vector<float>& out) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = in[0][i] * (in[0][i] > 0 ? 1.0f : in[1][i % channels]);
  });
  if (!records(context, {&x, &slope})) return y;  // evaluation: nobody wants gradients
  // The closure holds what backward reads, x and slope, until backward has run.
  context.tape->record(context, y, [=](const Context& ctx, const Tensor& dy, GradientStore& store) {
    store.add(ctx, x, on_host(ctx, {dy, x, slope}, x.shape(), [=](const auto& in, std::vector<float>& dx) {
                for (std::size_t i = 0; i < dx.size(); ++i)
                  dx[i] = in[0][i] * (in[1][i] > 0 ? 1.0f : in[2][i % channels]);
              }));
    store.add(ctx, slope, on_host(ctx, {dy, x}, slope.shape(), [=](const auto& in, std::vector<float>& dslope) {
                for (std::size_t i = 0; i < in[0].size(); ++i)
                  dslope[i % channels] += in[0][i] * std::min(in[1][i], 0.0f);
              }));
  });
  return y;
}

class PRelu : public Layer {
 public:
  explicit PRelu(float initial) : initial_(initial) {}
  std::string_view kind() const override { return "my_prelu"; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    if (inputs.size() != 1 || inputs[0].rank() == 0) throw ShapeError("my_prelu: expected one input (…, channels)");
    return inputs[0];
  }
  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena&, std::span<const Shape> inputs) const override {
    const std::int64_t channels = inputs[0][inputs[0].rank() - 1];
    return std::make_unique<Bound>(scope.parameter("slope", {channels}, constant(initial_)));
  }
  bool supports_meta() const override { return true; }  // on_host asks the device

 private:
  struct Bound : BoundLayer {
    explicit Bound(Parameter& parameter) : slope(parameter) {}
    Tensor forward(const Context& context, std::span<Tensor> inputs) override {
      return prelu(context, inputs[0], slope.value());
    }
    Parameter& slope;
  };
  float initial_;
};

// Once, before the first configuration is read.
void register_layers() {
  layer_kinds().add("my_layer_scale", [](ConfigMap& options) -> LayerPtr {
    return std::make_shared<LayerScale>(static_cast<float>(options.number("initial", {}, 1.0)));
  });
  layer_kinds().add("my_prelu", [](ConfigMap& options) -> LayerPtr {
    return std::make_shared<PRelu>(static_cast<float>(options.number("initial", {}, 0.25)));
  });
}

// The parameter's gradient, as backward computes it, beside (L(p + h) - L(p - h)) / 2h, where L is Σ y and every
// element of the parameter moves by h. On the CPU, in float32.
bool gradient_is_right(const LayerPtr& layer, const Shape& input) {
  Runtime runtime;
  Graph graph(input);
  graph.add("own", layer);
  Model model(runtime, Device::cpu(), graph, {.seed = 1});
  Context context = model.context(Pass::train);
  const Shape batch = input.prepend(4);
  std::vector<float> values(static_cast<std::size_t>(batch.elements()));
  PhiloxSequence random(philox_key(1, RandomPurpose::dataset));
  for (float& value : values) value = random.uniform(-1.0f, 1.0f);
  const Tensor x = context.upload(batch, values.data());

  Parameter& parameter = model.parameters().all().front();
  const auto sum_at = [&](float h) {
    for (std::int64_t i = 0; i < parameter.shape().elements(); ++i) parameter.master().as<float>()[i] += h;
    double sum = 0;
    for (const float y : to_host_floats(model.forward(context, x), context.stream)) sum += y;
    for (std::int64_t i = 0; i < parameter.shape().elements(); ++i) parameter.master().as<float>()[i] -= h;
    return sum;
  };
  const double numeric = (sum_at(0.0625f) - sum_at(-0.0625f)) / 0.125;

  Tape tape;
  context.tape = &tape;
  const Tensor y = model.forward(context, x);
  const std::vector<float> ones(static_cast<std::size_t>(y.elements()), 1.0f);
  tape.backward(context, y, context.upload(y.shape(), ones.data()));
  double analytic = 0;
  for (const float gradient : to_host_floats(std::as_const(parameter).gradient(), context.stream)) analytic += gradient;
  std::printf("%s: gradient %.4f, by differences %.4f\n", std::string(layer->kind()).c_str(), analytic, numeric);
  return std::abs(analytic - numeric) < 1e-3 * (std::abs(numeric) + 1);
}

constexpr const char* kConfig = R"(
data:
  format: generated
  train_samples: 2000
  test_samples: 400
  pipeline: [shuffle: {}, normalize: {scale: 0.0039}, batch: {size: 25}]
model:
  input: [32, 32, 3]
  layers:
    - conv2d: {filters: 8, kernel: 3, stride: 2}
    - my_layer_scale: {initial: 0.5}
    - my_prelu
    - conv2d: {filters: 16, kernel: 3, stride: 2}
    - my_prelu: {initial: 0.1}
    - flatten
    - dense: {units: 10}
train: {epochs: 3, optimizer: {adam: {learning_rate: 0.003}}}
)";

}  // namespace

int main() {
  try {
    register_layers();
    if (!gradient_is_right(std::make_shared<LayerScale>(0.5f), {3, 3, 2})) return 1;
    if (!gradient_is_right(std::make_shared<PRelu>(0.25f), {3, 3, 2})) return 1;

    const run::Config config = run::Config::from_text(kConfig, "own_layers.yaml");
    std::printf("planned: %llu bytes in use at the peak\n",
                static_cast<unsigned long long>(run::plan(config).rows.front().peak_bytes));
    const auto folder = std::filesystem::temp_directory_path() / "bantam-own-layers";
    const run::Outcome outcome = run::train(config, {.folder = folder, .overwrite = true});
    std::printf("%lld updates, accuracy %.3f on the test samples, %llu bytes in use at the peak\n",
                static_cast<long long>(outcome.result.updates), outcome.result.validation.accuracy,
                static_cast<unsigned long long>(outcome.memory.peak_bytes));
    return outcome.result.validation.accuracy > 0.5 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
