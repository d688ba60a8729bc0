// A regression as a program would write it: float targets, the mean squared error on the host, and a metric.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/losses/loss.h"
#include "bantam/engine/metrics/metric.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::testing {

inline constexpr const char* kTargets = "targets";

/// Floats of a tensor of any device; it may wait.
inline std::vector<float> host_values(const Context& context, const Tensor& tensor) {
  return context.device.meta ? std::vector<float>(static_cast<std::size_t>(tensor.elements()))
                             : to_host_floats(tensor, context.stream);
}

inline std::vector<TensorFacts> regression_targets(const char* who, const Shape& output) {
  if (output.rank() != 1)
    throw ShapeError(std::string(who) + ": expected an output of (values), got " + to_string(output));
  return {{.name = kTargets, .shape = output, .dtype = DType::float32}};
}

/// Σ over samples of the mean of (y - t)² over values, / divisor.
class MeanSquaredError : public Loss {
 public:
  explicit MeanSquaredError(bool supports_meta = true) : supports_meta_(supports_meta) {}
  std::string_view kind() const override { return "mean_squared_error"; }
  std::vector<TensorFacts> targets(const Shape& output) const override { return regression_targets("mse", output); }
  bool supports_meta() const override { return supports_meta_; }

  Tensor forward(const Context& context, const Tensor& output, const TensorMap& batch,
                 const LossCall& call) const override {
    if (context.device.meta && !supports_meta_) throw Error("mse: it was not to be called here");
    const std::vector<float> y = host_values(context, output), t = host_values(context, batch.at(kTargets));
    const auto samples = static_cast<double>(output.shape()[0]), values = static_cast<double>(output.shape()[1]);
    const double divisor = call.divisor > 0 ? call.divisor : samples;
    double sum = 0;
    std::vector<float> dy(y.size());
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double error = static_cast<double>(y[i]) - static_cast<double>(t[i]);
      sum += error * error / values;
      dy[i] = static_cast<float>(2 * error / values / divisor);
    }
    add_to_sums(context, call, {.loss = sum, .correct = 0, .samples = samples});
    const auto mean = static_cast<float>(sum / divisor);
    Tensor loss = context.upload({}, &mean, Category::activation);
    if (records(context, {&output})) record_backward(context, loss, output, std::move(dy));
    return loss;
  }

 private:
  static void record_backward(const Context& context, Tensor& loss, const Tensor& output, std::vector<float> dy) {
    context.tape->record(context, loss,
                         [dy = std::move(dy), x = ValueRef(output), shape = output.shape(), dtype = output.dtype()](
                             const Context& ctx, const Tensor& upstream, GradientStore& store) mutable {
                           const float scale = host_values(ctx, upstream)[0];
                           for (float& value : dy) value *= scale;
                           store.add(ctx, x, ops::cast(ctx, ctx.upload(shape, dy.data(), Category::activation), dtype));
                         });
  }

  bool supports_meta_;
};

/// √ of the mean squared error: no mean of batches' values.
class RootMeanSquaredError : public Metric {
 public:
  std::string_view kind() const override { return "rmse"; }
  std::vector<TensorFacts> targets(const Shape& output) const override { return regression_targets("rmse", output); }
  std::int64_t sums() const override { return 2; }
  bool supports_meta() const override { return true; }
  void accumulate(const Context& context, const Tensor& output, const TensorMap& batch,
                  const DeviceSums& to) const override {
    const std::vector<float> y = host_values(context, output), t = host_values(context, batch.at(kTargets));
    double sums[2] = {0, static_cast<double>(y.size())};
    for (std::size_t i = 0; i < y.size(); ++i) sums[0] += std::pow(static_cast<double>(y[i] - t[i]), 2);
    add_to_sums(context, to, sums);
  }
  double value(std::span<const double> sums) const override { return std::sqrt(sums[0] / sums[1]); }
};

/// Samples (3, 2, 1) whose targets are two linear functions of the pixels.
class RegressionSource : public BatchSource {
 public:
  RegressionSource(std::int64_t samples, std::int64_t batch) : samples_(samples), batch_(batch) {}
  std::vector<TensorFacts> tensors() const override {
    return {{.name = std::string(kImages), .shape = {3, 2, 1}},
            {.name = kTargets, .shape = {2}, .dtype = DType::float32}};
  }
  std::int64_t batch_size() const override { return batch_; }
  std::int64_t batches_per_epoch() const override { return (samples_ + batch_ - 1) / batch_; }
  std::int64_t size_of(std::int64_t index) const override { return std::min(batch_, samples_ - index * batch_); }
  void start(std::int64_t, std::int64_t first) override { next_ = first; }
  bool next(const Context& context, Batch& batch) override {
    if (next_ >= batches_per_epoch()) return false;
    const std::int64_t size = size_of(next_);
    std::vector<float> pixels, targets;
    for (std::int64_t s = next_ * batch_; s < next_ * batch_ + size; ++s) {
      const std::vector<float> x = random_floats(6, 50 + static_cast<std::uint64_t>(s));
      pixels.insert(pixels.end(), x.begin(), x.end());
      targets.insert(targets.end(), {x[0] - 0.5f * x[1] + 0.25f, 0.75f * x[4] + x[5]});
    }
    const Tensor images =
        ops::cast(context, context.upload({size, 3, 2, 1}, pixels.data()), context.precision.compute());
    batch = {.tensors = {{kImages, images}, {kTargets, context.upload({size, 2}, targets.data())}},
             .size = size,
             .index = next_++};
    return true;
  }

 private:
  std::int64_t samples_, batch_, next_ = 0;
};

inline Graph regression_network() {
  Graph graph({3, 2, 1});
  graph.add(flatten());
  graph.add("hidden", dense({.units = 16, .activation = {Activation::tanh}}));
  graph.add("values", dense({.units = 2}));
  return graph;
}

}  // namespace bantam::testing
