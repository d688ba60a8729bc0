// Test support for the engine: a runtime and a device for each instance, small random data, and a batch source in
// memory.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/engine/autograd/partial_gradients.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/model/model.h"
#include "bantam/engine/ops/batch_norm.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/engine/optimizers/optimizer.h"
#include "bantam/engine/program/step_program.h"
#include "bantam/engine/step/batch_source.h"
#include "bantam/engine/step/training_step.h"
#include "bantam/kernels/elementwise/elementwise.h"
#include "bantam/kernels/update/update.h"

namespace bantam::testing {

/// Runs on every device; CUDA instances skip where there is no GPU. Instances are named cpu and cuda.
class EngineTest : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (GetParam().is_cuda() && cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device: skipped";
  }
  Device device() const { return GetParam(); }
  Runtime& runtime() { return runtime_; }
  Context context(Precision precision = {}) { return Context::make(runtime_, device(), precision); }

 private:
  Runtime runtime_{{.threads = 2}};
};

inline std::string engine_test_name(const ::testing::TestParamInfo<Device>& info) {
  return info.param.is_cpu() ? "cpu" : "cuda";
}
#define BANTAM_INSTANTIATE_ON_DEVICES(Suite)                                                                  \
  INSTANTIATE_TEST_SUITE_P(Devices, Suite, ::testing::Values(bantam::Device::cpu(), bantam::Device::cuda(0)), \
                           bantam::testing::engine_test_name)

inline std::vector<float> random_floats(std::int64_t count, std::uint64_t seed, float low = -1.0f, float high = 1.0f) {
  PhiloxSequence random(philox_key(seed, RandomPurpose::test));
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = random.uniform(low, high);
  return values;
}

/// A tensor of random values in the context's compute type.
inline Tensor random_tensor(const Context& context, const Shape& shape, std::uint64_t seed, float low = -1.0f,
                            float high = 1.0f) {
  const Tensor floats = context.upload(shape, random_floats(shape.elements(), seed, low, high).data());
  return ops::cast(context, floats, context.precision.compute());
}

/// Images with a pattern that depends on the label, and labels, for `samples` samples from `first` on.
inline Batch make_batch(const Context& context, const Shape& image, std::int64_t classes, std::int64_t first,
                        std::int64_t samples) {
  std::vector<float> pixels;
  std::vector<std::int32_t> labels;
  for (std::int64_t s = first; s < first + samples; ++s) {
    const auto label = static_cast<std::int32_t>((s * 7 + 3) % classes);
    labels.push_back(label);
    std::vector<float> values = random_floats(image.elements(), 1000 + static_cast<std::uint64_t>(s), 0.0f, 0.5f);
    for (std::size_t i = 0; i < values.size(); ++i)
      pixels.push_back(values[i] + (static_cast<std::int64_t>(i) % classes == label ? 0.5f : 0.0f));
  }
  Batch batch;
  const Tensor floats = context.upload(image.prepend(samples), pixels.data());
  batch.tensors.set(kImages, ops::cast(context, floats, context.precision.compute()));
  batch.tensors.set(kLabels, context.upload({samples}, labels.data()));
  batch.size = samples;
  return batch;
}

/// `make_batch` over and over: the samples of an epoch in order, rotated by the epoch.
class MemorySource : public BatchSource {
 public:
  MemorySource(Shape image, std::int64_t classes, std::int64_t samples, std::int64_t batch)
      : image_(image), classes_(classes), samples_(samples), batch_(batch) {}
  std::vector<TensorFacts> tensors() const override {
    return {{.name = std::string(kImages), .shape = image_},
            {.name = std::string(kLabels), .dtype = DType::int32, .classes = classes_}};
  }
  std::int64_t batch_size() const override { return batch_; }
  std::int64_t batches_per_epoch() const override { return (samples_ + batch_ - 1) / batch_; }
  std::int64_t size_of(std::int64_t index) const override { return std::min(batch_, samples_ - index * batch_); }
  void start(std::int64_t epoch, std::int64_t first) override { epoch_ = epoch, next_ = first; }
  bool next(const Context& context, Batch& batch) override {
    if (next_ >= batches_per_epoch()) return false;
    batch = make_batch(context, image_, classes_, next_ * batch_ + epoch_ * 13, size_of(next_));
    batch.index = next_++;
    return true;
  }

 private:
  Shape image_;
  std::int64_t classes_, samples_, batch_, epoch_ = 0, next_ = 0;
};

/// A small network with every kind of state: batch norm (running statistics), dropout, a residual block, pooling.
inline Graph small_network(bool batch_norm_layers = true) {
  Graph graph({8, 8, 3});
  graph.add("stem", conv2d({.filters = 8, .kernel = {3, 3}, .padding = Padding::same(), .bias = !batch_norm_layers}));
  NodeId x = graph.output();
  if (batch_norm_layers) x = graph.add("stem_norm", batch_norm({.rate = 0.1f, .activation = {Activation::relu}}));
  NodeId y = graph.add("block/conv1", conv2d({.filters = 8, .kernel = {3, 3}, .padding = Padding::same()}), {x});
  if (batch_norm_layers) y = graph.add("block/norm1", batch_norm({.activation = {Activation::gelu}}), {y});
  y = graph.add("block/drop", dropout({.rate = 0.25f}), {y});
  graph.add("block/add", add({Activation::relu}), {y, x});
  graph.add("pool", max_pool());
  graph.add("separable", separable_conv2d({.filters = 12, .activation = {Activation::silu}}));
  graph.add(flatten());
  graph.add("drop", dropout({.rate = 0.5f}));
  graph.add("head", dense({.units = 5}));
  return graph;
}

inline double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference) / std::max(std::sqrt(norm), 1e-300);
}

}  // namespace bantam::testing
