// Two losses of a program's own, each named by a configuration: one computed on the host, which may be any formula, and
// one composed of an op and a built-in loss, which runs on the device and in captured steps.
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bantam/bantam.h"

using namespace bantam;

namespace {

// Pinball loss: max(q·(t - y), (q - 1)·(t - y)). The output that minimises it is the q-quantile of the targets.
class Pinball : public Loss {
 public:
  explicit Pinball(float quantile) : quantile_(quantile) {}
  std::string_view kind() const override { return "pinball"; }
  std::vector<TensorFacts> targets(const Shape& output) const override {
    if (output.rank() != 1) throw ShapeError("pinball: expected an output of (values), got " + to_string(output));
    return {{.name = std::string(kTargets), .shape = output, .dtype = DType::float32}};
  }
  Tensor forward(const Context& context, const Tensor& output, const TensorMap& batch,
                 const LossCall& call) const override {
    const std::vector<float> y = to_host_floats(output, context.stream),
                             t = to_host_floats(batch.at(kTargets), context.stream);
    const auto samples = static_cast<float>(output.shape()[0]), values = static_cast<float>(output.shape()[1]);
    const float divisor = call.divisor > 0 ? call.divisor : samples;
    std::vector<float> gradient(y.size());
    float sum = 0;  // Σ of samples' losses, each the mean over its values
    for (std::size_t i = 0; i < y.size(); ++i) {
      const float slope = t[i] > y[i] ? -quantile_ : 1 - quantile_;
      sum += slope * (y[i] - t[i]) / values;
      gradient[i] = slope / values / divisor;
    }
    add_to_sums(context, call, {.loss = sum, .correct = 0, .samples = samples});
    const float loss_value = sum / divisor;
    Tensor loss = context.upload({}, &loss_value, Category::activation);
    if (!records(context, {&output})) return loss;
    context.tape->record(context, loss, [=](const Context& ctx, const Tensor& upstream, GradientStore& store) {
      std::vector<float> dy = gradient;
      for (float& value : dy) value *= to_host_floats(upstream, ctx.stream)[0];
      store.add(ctx, output, ops::cast(ctx, ctx.upload(output.shape(), dy.data()), output.dtype()));
    });
    return loss;
  }

 private:
  float quantile_;
};

// The squared error of tanh(output): targets in (-1, 1), and outputs that cannot leave it.
class BoundedError : public Loss {
 public:
  std::string_view kind() const override { return "bounded_error"; }
  std::vector<TensorFacts> targets(const Shape& output) const override { return error_->targets(output); }
  Tensor forward(const Context& context, const Tensor& output, const TensorMap& batch,
                 const LossCall& call) const override {
    return error_->forward(context, ops::activation(context, output, Activation::tanh), batch, call);
  }
  bool supports_meta() const override { return true; }

 private:
  LossPtr error_ = mse_loss();
};

// One value from eight: the sum of two of them, with noise that is uniform in ±1/4.
class Noisy : public BatchSource {
 public:
  std::vector<TensorFacts> tensors() const override {
    return {{.name = std::string(kImages), .shape = {2, 2, 2}},
            {.name = std::string(kTargets), .shape = {1}, .dtype = DType::float32}};
  }
  std::int64_t batch_size() const override { return 64; }
  std::int64_t batches_per_epoch() const override { return 50; }
  std::int64_t size_of(std::int64_t) const override { return 64; }
  void start(std::int64_t, std::int64_t first) override { next_ = first; }
  bool next(const Context& context, Batch& batch) override {
    if (next_ == batches_per_epoch()) return false;
    PhiloxSequence random(philox_key(1, RandomPurpose::dataset, static_cast<std::uint64_t>(next_)));
    std::vector<float> x(64 * 8), t(64);
    for (float& value : x) value = random.uniform(-0.3f, 0.3f);
    for (std::size_t i = 0; i < 64; ++i) t[i] = x[i * 8] + x[i * 8 + 5] + random.uniform(-0.25f, 0.25f);
    const Tensor images = ops::cast(context, context.upload({64, 2, 2, 2}, x.data()), context.precision.compute());
    batch = {
        .tensors = {{kImages, images}, {kTargets, context.upload({64, 1}, t.data())}}, .size = 64, .index = next_++};
    return true;
  }

 private:
  std::int64_t next_ = 0;
};

// The share of targets that lie below the output.
class Below : public Metric {
 public:
  std::string_view kind() const override { return "below"; }
  std::int64_t sums() const override { return 2; }
  void accumulate(const Context& context, const Tensor& output, const TensorMap& batch,
                  const DeviceSums& to) const override {
    const std::vector<float> y = to_host_floats(output, context.stream),
                             t = to_host_floats(batch.at(kTargets), context.stream);
    double sums[2] = {0, static_cast<double>(y.size())};
    for (std::size_t i = 0; i < y.size(); ++i) sums[0] += t[i] < y[i] ? 1 : 0;
    add_to_sums(context, to, sums);
  }
  double value(std::span<const double> sums) const override { return sums[0] / sums[1]; }
};

// Trains a small network with the loss that `yaml` names; returns what the last epoch came to.
Metrics train(const std::string& yaml) {
  ConfigMap options = ConfigDocument::parse(yaml, "train.yaml").map();
  const LossOptions loss{.loss = read_loss(options), .metrics = {std::make_shared<Below>()}};
  options.finish();
  Graph graph({2, 2, 2});
  graph.add(flatten());
  graph.add("value", dense({.units = 1}));
  Runtime runtime;
  Model model(runtime, Device::cpu(), graph, {.seed = 1});
  Optimizer optimizer(model, {.rule = adam({.learning_rate = 0.01f})});
  TrainingStep step(model, optimizer, loss);
  Noisy data, validation;
  return Trainer(step, data, &validation, {.epochs = 8}).run().validation;
}

}  // namespace

int main() {
  losses().add("pinball", [](ConfigMap& options) -> LossPtr {
    return std::make_shared<Pinball>(static_cast<float>(options.number(
        {"quantile", "Share of targets that shall lie below the output.", "0.9"}, {.min = 0, .max = 1}, 0.5)));
  });
  losses().add("bounded_error", [](ConfigMap&) -> LossPtr { return std::make_shared<BoundedError>(); });
  const Metrics high = train("loss: {pinball: {quantile: 0.9}}"), bounded = train("loss: bounded_error");
  const double below = high.values.at(0).value();
  std::printf("pinball 0.9     loss %.4f, %.0f %% of the targets lie below\n", high.loss, 100 * below);
  std::printf("bounded_error   loss %.4f (the noise alone: %.4f)\n", bounded.loss, 0.5 * 0.5 / 12);
  return std::abs(below - 0.9) < 0.03 && bounded.loss < 0.025 ? 0 : 1;
}
