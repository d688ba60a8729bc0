// A program that adds to Bantam: a layer, a loss, a metric and a callback of its own, each named by a configuration as
// the built-in ones are. It learns to say where in an image a bright spot is.
#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

#include "bantam/bantam.h"

using namespace bantam;

namespace {

constexpr const char* kConfig = R"(
model:
  input: [8, 8, 1]
  layers:
    - conv2d: {filters: 8, kernel: 3, padding: same, activation: relu}
    - mixed_pool: {size: 2}
    - flatten
    - dense: {units: 2}
train:
  loss: mean_squared_error
  metrics: [within: {distance: 0.15}]
  optimizer: {adam: {learning_rate: 0.005}}
  callbacks: [print_epochs]
)";

// A layer: the sum of maximum and average of each window. It is composed of ops, which run on every device and record
// their own gradients.
class MixedPool : public Layer {
 public:
  explicit MixedPool(std::int64_t size) : size_(size) {}
  std::string_view kind() const override { return "mixed_pool"; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    if (inputs.size() != 1 || inputs[0].rank() != 3)
      throw ShapeError("mixed_pool: expected one input (height, width, channels)");
    return {inputs[0][0] / size_, inputs[0][1] / size_, inputs[0][2]};
  }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    struct Bound : BoundLayer {
      Window2d window;
      Tensor forward(const Context& context, std::span<Tensor> inputs) override {
        return ops::add(context, ops::max_pool2d(context, inputs[0], window),
                        ops::avg_pool2d(context, inputs[0], window));
      }
    };
    auto bound = std::make_unique<Bound>();
    bound->window = {.kernel = {size_, size_}, .stride = {size_, size_}};
    return bound;
  }
  bool supports_meta() const override { return true; }

 private:
  std::int64_t size_;
};

// The tensor of a batch that loss and metric read beside the model's output.
constexpr const char* kPlaces = "places";

std::vector<TensorFacts> places(const Shape& output) {
  if (output != Shape{2}) throw ShapeError("expected an output of (2), a row and a column, got " + to_string(output));
  return {{.name = kPlaces, .shape = {2}, .dtype = DType::float32}};
}

// A loss: Σ of squared distances / divisor, computed on the host. Nothing but `targets` and `forward` is needed.
class MeanSquaredError : public Loss {
 public:
  std::string_view kind() const override { return "mean_squared_error"; }
  std::vector<TensorFacts> targets(const Shape& output) const override { return places(output); }
  Tensor forward(const Context& context, const Tensor& output, const TensorMap& batch,
                 const LossCall& call) const override {
    const std::vector<float> y = to_host_floats(output, context.stream),
                             t = to_host_floats(batch.at(kPlaces), context.stream);
    const auto samples = static_cast<float>(output.shape()[0]);
    const float divisor = call.divisor > 0 ? call.divisor : samples;
    std::vector<float> gradient(y.size());
    float sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      sum += (y[i] - t[i]) * (y[i] - t[i]);
      gradient[i] = 2 * (y[i] - t[i]) / divisor;
    }
    add_to_sums(context, call, {.loss = sum, .correct = 0, .samples = samples});
    const float mean = sum / divisor;
    Tensor loss = context.upload({}, &mean, Category::activation);
    if (!records(context, {&output})) return loss;
    // Backward: d output = d loss · 2 (y - t) / divisor.
    context.tape->record(context, loss, [=](const Context& ctx, const Tensor& upstream, GradientStore& store) {
      std::vector<float> dy = gradient;
      for (float& value : dy) value *= to_host_floats(upstream, ctx.stream)[0];
      store.add(ctx, output, ops::cast(ctx, ctx.upload(output.shape(), dy.data()), output.dtype()));
    });
    return loss;
  }
};

// A metric: the share of samples whose place is found to within a distance.
class Within : public Metric {
 public:
  explicit Within(double distance) : distance_(distance) {}
  std::string_view kind() const override { return "within"; }
  std::vector<TensorFacts> targets(const Shape& output) const override { return places(output); }
  std::int64_t sums() const override { return 2; }  // samples found, samples
  void accumulate(const Context& context, const Tensor& output, const TensorMap& batch,
                  const DeviceSums& to) const override {
    const std::vector<float> y = to_host_floats(output, context.stream),
                             t = to_host_floats(batch.at(kPlaces), context.stream);
    double sums[2] = {0, static_cast<double>(y.size() / 2)};
    for (std::size_t i = 0; i < y.size(); i += 2)
      sums[0] += std::hypot(y[i] - t[i], y[i + 1] - t[i + 1]) < distance_ ? 1 : 0;
    add_to_sums(context, to, sums);
  }
  double value(std::span<const double> sums) const override { return sums[0] / sums[1]; }

 private:
  double distance_;
};

// A callback: a line an epoch. It only looks on, so that updates need not wait for it.
class PrintEpochs : public Callback {
 public:
  bool observes() const override { return true; }
  void on_epoch_end(const EpochEvent& event) override {
    std::printf("epoch %2lld  loss %.4f", static_cast<long long>(event.epoch + 1), event.train.loss);
    for (const MetricValue& metric : event.validation.values)
      std::printf("  validation %s %.3f", std::string(metric.name()).c_str(), metric.value());
    std::printf("\n");
  }
};

// Once, before the first configuration is read.
void register_all() {
  layer_kinds().add("mixed_pool", [](ConfigMap& options) -> LayerPtr {
    return std::make_shared<MixedPool>(options.integer({"size", "Height and width of the window."}, {.min = 1}, 2));
  });
  losses().add("mean_squared_error", [](ConfigMap&) -> LossPtr { return std::make_shared<MeanSquaredError>(); });
  metrics().add("within", [](ConfigMap& options) -> MetricPtr {
    return std::make_shared<Within>(
        options.number({"distance", "Places this near count as found.", "0.15"}, {.min = 0}));
  });
  callbacks().add("print_epochs",
                  [](ConfigMap&) -> CallbackMaker { return [] { return std::make_unique<PrintEpochs>(); }; });
}

// The data: images of noise with one bright pixel, and its row and column in [0, 1).
class Spots : public BatchSource {
 public:
  Spots(std::int64_t batches, std::uint64_t seed) : batches_(batches), seed_(seed) {}
  std::vector<TensorFacts> tensors() const override {
    return {{.name = std::string(kImages), .shape = {8, 8, 1}},
            {.name = kPlaces, .shape = {2}, .dtype = DType::float32}};
  }
  std::int64_t batch_size() const override { return 32; }
  std::int64_t batches_per_epoch() const override { return batches_; }
  std::int64_t size_of(std::int64_t) const override { return 32; }
  void start(std::int64_t, std::int64_t first) override { next_ = first; }
  bool next(const Context& context, Batch& batch) override {
    if (next_ == batches_) return false;
    PhiloxSequence random(philox_key(seed_, RandomPurpose::dataset, static_cast<std::uint64_t>(next_)));
    std::vector<float> pixels(32 * 64), spots;
    for (float& pixel : pixels) pixel = random.uniform(0.0f, 0.3f);
    for (std::size_t sample = 0; sample < 32; ++sample) {
      const std::size_t place = random.below(64);
      pixels[sample * 64 + place] = 1.0f;
      spots.insert(spots.end(), {static_cast<float>(place / 8) / 8, static_cast<float>(place % 8) / 8});
    }
    const Tensor images = ops::cast(context, context.upload({32, 8, 8, 1}, pixels.data()), context.precision.compute());
    batch = {
        .tensors = {{kImages, images}, {kPlaces, context.upload({32, 2}, spots.data())}}, .size = 32, .index = next_++};
    return true;
  }

 private:
  std::int64_t batches_, next_ = 0;
  std::uint64_t seed_;
};

}  // namespace

int main() {
  register_all();
  ConfigMap config = ConfigDocument::parse(kConfig, "extend.yaml").map();
  const models::ModelSpec network = models::read_model(config.node("model"));
  ConfigMap train = config.map("train");
  const LossOptions loss{.loss = read_loss(train), .metrics = read_metrics(train)};
  const OptimizerOptions optimizer_options = read_optimizer(train);
  const std::vector<CallbackMaker> makers = read_callbacks(train);
  train.finish();

  Runtime runtime;
  Model model(runtime, Device::cpu(), network.graph, {.seed = 1});
  Optimizer optimizer(model, optimizer_options);
  TrainingStep step(model, optimizer, loss);
  Spots data(32, 1), validation(8, 2);
  Trainer trainer(step, data, &validation, {.epochs = 12});
  std::vector<std::unique_ptr<Callback>> own;
  for (const CallbackMaker& make : makers) trainer.add(*own.emplace_back(make()));
  const TrainResult result = trainer.run();
  return result.validation.values.at(0).value() > 0.9 ? 0 : 1;
}
