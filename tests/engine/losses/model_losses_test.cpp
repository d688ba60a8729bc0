// The losses that configurations name, as models train with them: ten updates are PyTorch's, every mode has the same
// bits, micro-batches add up, a gradient without a seed, and what is refused.
#include <algorithm>
#include <functional>
#include <map>
#include <tuple>

#include "bantam/engine/step/captured_updates.h"
#include "bantam/engine/train/trainer.h"
#include "tests/engine/engine_fixture.h"
#include "tests/kernels/loss/loss_oracle.h"

namespace bantam::model_losses_test {
namespace {

using testing::EngineTest;
using testing::oracle::Updates;

constexpr std::int64_t kSamples = 6, kClasses = 4, kPositions = 4;

/// A layer without bias that ends the network: 12 values to 4, or 3 to 4 at each of 2 x 2 pixels.
Graph one_layer(bool per_pixel) {
  Graph graph({2, 2, 3});
  if (per_pixel) {
    graph.add("out", conv2d({.filters = kClasses, .kernel = {1, 1}, .bias = false}));
  } else {
    graph.add(flatten());
    graph.add("out", dense({.units = kClasses, .bias = false}));
  }
  return graph;
}

std::vector<float> values_of(std::int64_t count, const std::function<double(double)>& value) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(value(static_cast<double>(i))));
  return values;
}

enum class Given : std::uint8_t { labels, pixels, floats, masks, shares };

/// The operands of tests/oracles/losses.py for all samples.
Tensor target_of(const Context& context, Given given) {
  constexpr std::int64_t kValues = kSamples * kClasses;
  std::vector<float> t = values_of(kValues, [](double i) { return (1 + std::sin(1.3 * i)) / 2; });
  std::vector<std::int32_t> labels;
  switch (given) {
    case Given::labels:
      for (std::int32_t i = 0; i < kSamples; ++i) labels.push_back((7 * i + 3) % static_cast<std::int32_t>(kClasses));
      return context.upload({kSamples}, labels.data());
    case Given::pixels:
      for (std::int32_t i = 0; i < kSamples * kPositions; ++i)
        labels.push_back(i % 5 == 0 ? 255 : (7 * i + 3) % static_cast<std::int32_t>(kClasses));
      return context.upload({kSamples, 2, 2}, labels.data());
    case Given::masks:
      for (float& value : t) value = value >= 0.5f ? 1.0f : 0.0f;
      break;
    case Given::shares:
      for (std::size_t row = 0; row < t.size(); row += kClasses) {
        double sum = 0;
        for (std::size_t c = 0; c < kClasses; ++c) sum += static_cast<double>(t[row + c]);
        for (std::size_t c = 0; c < kClasses; ++c)
          t[row + c] = static_cast<float>(static_cast<double>(t[row + c]) / sum);
      }
      break;
    case Given::floats:
      break;
  }
  return context.upload({kSamples, kClasses}, t.data());
}

struct LossRun {
  const char* name;
  LossPtr loss;
  Given given;
  const Updates* expected;

  bool per_pixel() const { return given == Given::pixels; }
  std::string target() const { return std::string(given == Given::labels || per_pixel() ? kLabels : kTargets); }
};

/// The loss that a configuration means by `loss: TEXT`.
LossPtr configured(const std::string& text) {
  ConfigMap section = ConfigDocument::parse("loss: " + text, "loss.yaml").map();
  LossPtr loss = read_loss(section);
  section.finish();
  return loss;
}

std::vector<LossRun> loss_runs() {
  namespace updates = testing::oracle::updates;
  const std::string weights = "class_weights: [0.5, 0.75, 1, 1.25]";
  const std::tuple<const char*, std::string, Given, const Updates*> rows[] = {
      {"weighted", "{softmax_cross_entropy: {label_smoothing: 0.1, " + weights + "}}", Given::labels,
       &updates::kWeighted},
      {"soft", "{softmax_cross_entropy: {targets: values}}", Given::shares, &updates::kSoft},
      {"pixels", "{softmax_cross_entropy: {ignore_index: 255}}", Given::pixels, &updates::kPixels},
      {"sum", "{softmax_cross_entropy: {reduction: sum, " + weights + "}}", Given::labels, &updates::kSum},
      {"poly1", "{poly1: {epsilon: 2, label_smoothing: 0.1}}", Given::labels, &updates::kPoly1},
      {"focal", "focal", Given::labels, &updates::kFocal},
      {"binary", "{binary_cross_entropy: {positive_weights: [0.5, 0.75, 1, 1.25]}}", Given::masks, &updates::kBinary},
      {"binary focal", "{focal: {alpha: 0.25, targets: values}}", Given::masks, &updates::kBinaryFocal},
      {"mse", "mse", Given::floats, &updates::kSquared},
      {"mae", "mae", Given::floats, &updates::kAbsolute},
      {"huber", "{huber: {delta: 0.25}}", Given::floats, &updates::kHuber},
      {"dice", "{dice: {ignore_index: 255}}", Given::pixels, &updates::kDice},
  };
  std::vector<LossRun> runs;
  for (const auto& [name, text, given, expected] : rows) runs.push_back({name, configured(text), given, expected});
  return runs;
}

/// All samples in one batch.
Batch batch_of(const Context& context, const LossRun& run) {
  const std::vector<float> x = values_of(kSamples * 12, [](double i) { return std::sin(0.37 * i); });
  const Tensor images = ops::cast(context, context.upload({kSamples, 2, 2, 3}, x.data()), context.precision.compute());
  return {.tensors = {{kImages, images}, {run.target(), target_of(context, run.given)}}, .size = kSamples};
}

/// The same batch over and over.
class OneBatch : public BatchSource {
 public:
  OneBatch(const LossRun& run, std::int64_t batches) : run_(run), batches_(batches) {}
  std::vector<TensorFacts> tensors() const override {
    std::vector<TensorFacts> facts = run_.loss->targets(run_.per_pixel() ? Shape{2, 2, kClasses} : Shape{kClasses});
    facts.push_back({.name = std::string(kImages), .shape = {2, 2, 3}});
    return facts;
  }
  std::int64_t batch_size() const override { return kSamples; }
  std::int64_t batches_per_epoch() const override { return batches_; }
  std::int64_t size_of(std::int64_t) const override { return kSamples; }
  void start(std::int64_t, std::int64_t first) override { next_ = first; }
  bool next(const Context& context, Batch& batch) override {
    if (next_ >= batches_) return false;
    batch = batch_of(context, run_);
    batch.index = next_++;
    return true;
  }

 private:
  LossRun run_;
  std::int64_t batches_, next_ = 0;
};

/// The layer's weights become the oracle's first ones.
void set_weights(Model& model, bool per_pixel) {
  Parameter& weight = *model.parameters().find("out/weight");
  const std::vector<float> first =
      values_of(per_pixel ? kClasses * 3 : kClasses * 12, [](double i) { return 0.3 * std::cos(0.9 * i); });
  const Context context = model.context(Pass::train);
  copy_bytes(weight.master().data(), first.data(), weight.master().bytes(), context.stream);
  synchronize(context.stream);
  model.parameters().refresh_compute(context);
}

class LossesOfModelsTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(LossesOfModelsTest);

struct Losses : Callback {
  bool observes() const override { return true; }
  void on_progress(const ProgressEvent& event) override {
    for (const Metrics& metrics : event.metrics) all.push_back(metrics);
  }
  std::vector<Metrics> all;
};

struct Outcome {
  std::vector<float> weights;
  std::vector<Metrics> updates;
  MemoryStats memory;
  std::string log;
};

Outcome train(Device device, const LossRun& run, StepMode mode, Precision precision = {}) {
  Outcome outcome;
  Runtime runtime({.threads = 2, .log = [&](std::string_view line) { outcome.log += std::string(line) + "\n"; }});
  Model model(runtime, device, one_layer(run.per_pixel()), {.precision = precision, .seed = 5});
  set_weights(model, run.per_pixel());
  Optimizer optimizer(model, {.rule = sgd({.learning_rate = 0.05f})});
  TrainingStep step(model, optimizer, {.loss = run.loss});
  OneBatch data(run, 5);
  Losses heard;
  Trainer trainer(step, data, nullptr, {.epochs = 2, .mode = mode});
  trainer.add(heard);
  (void)trainer.run();
  outcome.weights = to_host<float>(model.parameters().find("out/weight")->master(), runtime.stream(device));
  outcome.updates = heard.all;
  outcome.memory = runtime.allocator(device).stats();
  return outcome;
}

// A step is some ten operations of float32 in a row, so that ten of them lose far less than 1e-5.
TEST_P(LossesOfModelsTest, TenUpdatesArePyTorchs) {
  constexpr double kRelative = 1e-5;
  for (const LossRun& run : loss_runs()) {
    SCOPED_TRACE(run.name);
    const Outcome outcome = train(device(), run, StepMode::eager);
    ASSERT_EQ(outcome.updates.size(), run.expected->losses.size());
    // What is told is the mean a sample, also where the loss is a sum.
    const double samples = std::string_view(run.name) == "sum" ? static_cast<double>(kSamples) : 1.0;
    for (std::size_t i = 0; i < outcome.updates.size(); ++i) {
      EXPECT_NEAR(outcome.updates[i].loss * samples, run.expected->losses[i], kRelative * run.expected->losses[i]) << i;
      EXPECT_EQ(outcome.updates[i].samples, kSamples);
    }
    EXPECT_LE(
        testing::relative_difference(outcome.weights, {run.expected->weights.begin(), run.expected->weights.end()}),
        kRelative);
  }
}

TEST_P(LossesOfModelsTest, AllModesHaveTheSameBits) {
  for (const LossRun& run : loss_runs()) {
    for (const Precision precision : {Precision{}, Precision{PrecisionKind::mixed_float16}}) {
      SCOPED_TRACE(run.name);
      const Outcome eager = train(device(), run, StepMode::eager, precision);
      for (const StepMode mode : {StepMode::planned, StepMode::captured}) {
        const Outcome outcome = train(device(), run, mode, precision);
        EXPECT_EQ(outcome.weights, eager.weights);
        EXPECT_EQ(outcome.updates.back().loss, eager.updates.back().loss);
        EXPECT_EQ(outcome.updates.back().accuracy, eager.updates.back().accuracy);
        EXPECT_GT(outcome.memory.planned_allocations, 10u);
        EXPECT_EQ(outcome.memory.departures, 0u) << "plan = measured";
        EXPECT_EQ(outcome.log.find("supports_meta"), std::string::npos) << outcome.log;
      }
    }
  }
}

/// A loss of a program's own: an op, and a built-in loss.
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

TEST_P(LossesOfModelsTest, AnOwnLossOfOpsHasTheSameBitsInAllModes) {
  const LossRun run{"own", std::make_shared<BoundedError>(), Given::floats, nullptr};
  const Outcome eager = train(device(), run, StepMode::eager);
  EXPECT_LT(eager.updates.back().loss, eager.updates.front().loss);
  for (const StepMode mode : {StepMode::planned, StepMode::captured}) {
    const Outcome outcome = train(device(), run, mode);
    EXPECT_EQ(outcome.weights, eager.weights);
    EXPECT_EQ(outcome.memory.departures, 0u);
    EXPECT_EQ(outcome.log.find("supports_meta"), std::string::npos) << outcome.log;
  }
}

// Class weights must not be read from the host's memory when the recording runs.
TEST_P(LossesOfModelsTest, RecordedUpdatesHaveTheSameBits) {
  if (!device().is_cuda()) GTEST_SKIP() << "nothing is recorded on a CPU";
  std::vector<LossRun> runs = loss_runs();
  runs.push_back({"own", std::make_shared<BoundedError>(), Given::floats, nullptr});
  for (const LossRun& run : runs) {
    SCOPED_TRACE(run.name);
    std::vector<std::vector<float>> weights;
    for (const bool records : {false, true}) {
      Runtime fresh({.threads = 2});
      Model model(fresh, device(), one_layer(run.per_pixel()), {.seed = 5});
      set_weights(model, run.per_pixel());
      Optimizer optimizer(model, {.rule = sgd({.learning_rate = 0.05f})});
      TrainingStep step(model, optimizer, {.loss = run.loss});
      const Batch batch = batch_of(model.context(Pass::train), run);
      step.prepare({.batches = {kSamples}});
      step.step(batch);
      if (records) {
        const auto update = step.capture([&] { step.step(batch); });
        for (int i = 0; i < 3; ++i) ASSERT_TRUE(step.replay(*update));
      } else {
        for (int i = 0; i < 3; ++i) step.step(batch);
      }
      weights.push_back(to_host<float>(model.parameters().find("out/weight")->master(), fresh.stream(device())));
    }
    EXPECT_EQ(weights[0], weights[1]);
  }
}

// A sample's loss does not depend on the others of its micro-batch: only sums are in another order.
TEST_P(LossesOfModelsTest, MicroBatchesAddUpToTheBatch) {
  for (const LossRun& run : loss_runs()) {
    SCOPED_TRACE(run.name);
    std::vector<std::vector<float>> weights;
    std::vector<Metrics> metrics;
    for (const std::int64_t most : {kSamples, std::int64_t{4}}) {
      Model model(runtime(), device(), one_layer(run.per_pixel()), {.seed = 5});
      set_weights(model, run.per_pixel());
      Optimizer optimizer(model, {.rule = sgd({.learning_rate = 0.05f})});
      TrainingStep step(model, optimizer, {.loss = run.loss});
      MicroBatches micro(step);
      micro.split(most);
      micro.train(batch_of(model.context(Pass::train), run), 0, kSamples);
      step.update();
      metrics.push_back(step.read_metrics().at(0));
      weights.push_back(to_host<float>(model.parameters().find("out/weight")->master(), runtime().stream(device())));
    }
    EXPECT_LE(testing::relative_difference(weights[1], weights[0]), 1e-6);
    EXPECT_NEAR(metrics[1].loss, metrics[0].loss, 1e-6 * metrics[0].loss);
    EXPECT_NEAR(metrics[1].accuracy, metrics[0].accuracy, 1e-12);
    EXPECT_EQ(metrics[1].samples, kSamples);
  }
}

TEST_P(LossesOfModelsTest, AGradientWithoutASeedHasTheSameBits) {
  for (const LossRun& run : loss_runs()) {
    SCOPED_TRACE(run.name);
    const Shape shape = run.per_pixel() ? Shape{kSamples, 2, 2, kClasses} : Shape{kSamples, kClasses};
    const std::vector<float> x = testing::random_floats(shape.elements(), 3, -2, 2);
    std::vector<std::vector<float>> gradients;
    for (const bool seeded : {true, false}) {
      Tape tape;
      Context ctx = context();
      ctx.tape = &tape;
      Tensor output = ctx.upload(shape, x.data());
      output.set_value_id(runtime().new_value_id());
      const float three = 3;
      const Tensor seed = ctx.upload({}, &three);
      const TensorMap batch = {{run.target(), target_of(ctx, run.given)}};
      const Tensor loss =
          run.loss->forward(ctx, output, batch, {.divisor = kSamples, .seed = seeded ? seed : Tensor()});
      GradientStore store = tape.backward(ctx, loss, seed);
      gradients.push_back(to_host<float>(store.pop(output.value_id()), ctx.stream));
    }
    EXPECT_EQ(gradients[0], gradients[1]);
    EXPECT_GT(*std::max_element(gradients[0].begin(), gradients[0].end()), 0.0f);
  }
}

TEST_P(LossesOfModelsTest, AnotherGradientThanPromisedIsAnError) {
  const LossPtr loss = mse_loss();
  Tape tape;
  Context ctx = context();
  ctx.tape = &tape;
  const float numbers[] = {1, 2};
  Tensor output = ctx.upload({1, 2}, numbers);
  output.set_value_id(runtime().new_value_id());
  const Tensor seed = ctx.upload({}, numbers), other = ctx.upload({}, numbers);
  const Tensor made = loss->forward(ctx, output, {{kTargets, ctx.upload({1, 2}, numbers)}}, {.seed = seed});
  EXPECT_THROW((void)tape.backward(ctx, made, other), Error);
}

TEST(LossOptionsOfLosses, ThePlainCrossEntropyAloneJoinsFusedHeads) {
  EXPECT_TRUE(softmax_cross_entropy()->as_softmax_cross_entropy({}));
  const auto sum = softmax_cross_entropy({.reduction = LossReduction::sum})->as_softmax_cross_entropy({.divisor = 8});
  ASSERT_TRUE(sum);
  EXPECT_EQ(sum->options.divisor, 1.0f);
  EXPECT_EQ(softmax_cross_entropy()->as_softmax_cross_entropy({.divisor = 8})->options.divisor, 8.0f);
  EXPECT_FALSE(softmax_cross_entropy({.class_weights = {1, 2}})->as_softmax_cross_entropy({}));
  EXPECT_FALSE(softmax_cross_entropy({.ignore_index = 0})->as_softmax_cross_entropy({}));
  EXPECT_FALSE(softmax_cross_entropy({.targets = LossTargets::values})->as_softmax_cross_entropy({}));
  EXPECT_FALSE(poly1_loss()->as_softmax_cross_entropy({}));
  EXPECT_FALSE(focal_loss()->as_softmax_cross_entropy({}));
}

TEST(LossOptionsOfLosses, WhatDoesNotGoTogetherIsRefused) {
  constexpr auto kValues = LossTargets::values;
  EXPECT_THROW((void)softmax_cross_entropy({.class_weights = {1, -1}}), ConfigError);
  EXPECT_THROW((void)softmax_cross_entropy({.ignore_index = 0, .targets = kValues}), ConfigError);
  EXPECT_THROW((void)poly1_loss({.epsilon = -1.5f}), ConfigError);
  EXPECT_THROW((void)poly1_loss({.cross_entropy = {.label_smoothing = 1}}), ConfigError);
  EXPECT_THROW((void)poly1_loss({.cross_entropy = {.ignore_index = 0, .targets = kValues}}), ConfigError);
  EXPECT_THROW((void)focal_loss({.gamma = -1}), ConfigError);
  EXPECT_THROW((void)focal_loss({.alpha = 0.5f}), ConfigError);
  EXPECT_THROW((void)focal_loss({.class_weights = {1}, .targets = kValues}), ConfigError);
  EXPECT_THROW((void)binary_cross_entropy({.label_smoothing = 1}), ConfigError);
  EXPECT_THROW((void)huber_loss(0), ConfigError);
  EXPECT_THROW((void)dice_loss({.smooth = 0}), ConfigError);
  EXPECT_THROW((void)dice_loss({.ignore_index = 0, .targets = kValues}), ConfigError);
}

TEST(LossOptionsOfLosses, TargetsFollowTheOutput) {
  const std::vector<TensorFacts> pixels = softmax_cross_entropy()->targets({4, 5, 3});
  EXPECT_EQ(pixels.at(0).name, kLabels);
  EXPECT_EQ(pixels.at(0).shape, (Shape{4, 5}));
  EXPECT_EQ(pixels.at(0).classes, 3);
  const std::vector<TensorFacts> values = mse_loss()->targets({4, 5, 3});
  EXPECT_EQ(values.at(0).name, kTargets);
  EXPECT_EQ(values.at(0).shape, (Shape{4, 5, 3}));
  EXPECT_EQ(values.at(0).dtype, DType::float32);
  EXPECT_THROW((void)softmax_cross_entropy({.class_weights = {1, 2}})->targets({3}), ShapeError);
  EXPECT_THROW((void)binary_cross_entropy({.positive_weights = {1, 2}})->targets({3}), ShapeError);
  EXPECT_NO_THROW((void)binary_cross_entropy({.positive_weights = {2}})->targets({3}));
  EXPECT_THROW((void)softmax_cross_entropy()->targets({3, 4}), ShapeError);
  EXPECT_THROW((void)dice_loss()->targets({3}), ShapeError);
}

}  // namespace
}  // namespace bantam::model_losses_test
