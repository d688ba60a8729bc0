// A program's own loss, metric and update rule: what they train, what is counted, and in which modes.
#include <algorithm>
#include <limits>

#include "bantam/engine/plan/step_plan.h"
#include "bantam/engine/step/random_batch.h"
#include "bantam/engine/train/trainer.h"
#include "tests/engine/train/regression.h"

namespace bantam::own_loss_test {
namespace {

using testing::EngineTest;
using testing::MeanSquaredError;
using testing::RegressionSource;
using testing::RootMeanSquaredError;

class OwnLossTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(OwnLossTest);

struct Heard : Callback {
  bool observes() const override { return true; }
  void on_progress(const ProgressEvent& event) override {
    for (const Metrics& metrics : event.metrics) updates.push_back(metrics);
    epoch_rmse = event.epoch_values.empty() ? -1 : event.epoch_values[0].value();
  }
  void on_epoch_end(const EpochEvent& event) override { epochs.push_back(event); }
  std::vector<Metrics> updates;
  std::vector<EpochEvent> epochs;
  double epoch_rmse = -1;
};

struct Outcome {
  std::vector<float> weights;
  Heard heard;
  MemoryStats memory;
  std::string log;
};

LossOptions regression(bool supports_meta) {
  return {.loss = std::make_shared<MeanSquaredError>(supports_meta),
          .metrics = {accuracy(), std::make_shared<RootMeanSquaredError>()}};
}

/// Four epochs of batches of 8 and a last one of 5, two an update.
Outcome train(Device device, StepMode mode, const LossOptions& loss, const OptimizerOptions& optimizer_options = {}) {
  Outcome run;
  Runtime runtime({.threads = 2, .log = [&run](std::string_view line) { run.log += std::string(line) + "\n"; }});
  Model model(runtime, device, testing::regression_network(), {.seed = 5});
  Optimizer optimizer(model, optimizer_options);
  TrainingStep step(model, optimizer, loss);
  RegressionSource data(53, 8), held_out(11, 8);
  Trainer trainer(step, data, &held_out, {.epochs = 4, .accumulate = 2, .mode = mode});
  trainer.add(run.heard);
  (void)trainer.run();
  run.weights = to_host<float>(model.parameters().master(), runtime.stream(device));
  run.memory = runtime.allocator(device).stats();
  return run;
}

TEST_P(OwnLossTest, ARegressionTrainsToTheSameBitsInAllModes) {
  const OptimizerOptions fast{.rule = adam({.learning_rate = 0.02f})};
  const Outcome eager = train(device(), StepMode::eager, regression(true), fast);
  ASSERT_EQ(eager.heard.epochs.size(), 4u);
  EXPECT_LT(eager.heard.epochs.back().train.loss, 0.5 * eager.heard.epochs.front().train.loss);
  for (const bool supports_meta : {true, false})
    for (const StepMode mode : {StepMode::planned, StepMode::captured}) {
      const Outcome run = train(device(), mode, regression(supports_meta), fast);
      EXPECT_EQ(run.weights, eager.weights);
      EXPECT_EQ(run.heard.epochs.back().validation.loss, eager.heard.epochs.back().validation.loss);
      EXPECT_GT(run.memory.planned_allocations, 50u);
      EXPECT_EQ(run.memory.departures, 0u);
      const bool says = run.log.find(
                            "the loss 'mean_squared_error' does not support meta devices "
                            "(Loss::supports_meta)") != std::string::npos;
      EXPECT_EQ(says, !supports_meta) << run.log;
    }
}

TEST_P(OwnLossTest, MetricsAreMadeOfTheSumsOfAllBatches) {
  const Outcome run = train(device(), StepMode::planned, regression(true));
  ASSERT_EQ(run.heard.updates.size(), 16u);  // seven batches an epoch, two an update
  double sum = 0, count = 0;
  for (std::size_t i = 12; i < 16; ++i) {
    ASSERT_EQ(run.heard.updates[i].values.size(), 1u) << "accuracy is counted by the loss";
    sum += run.heard.updates[i].values[0].sums[0];
    count += run.heard.updates[i].values[0].sums[1];
  }
  EXPECT_EQ(count, 53 * 2);
  const Metrics& last = run.heard.epochs.back().train;
  ASSERT_EQ(last.values.size(), 1u);
  EXPECT_EQ(last.values[0].name(), "rmse");
  EXPECT_DOUBLE_EQ(last.values[0].value(), std::sqrt(sum / count));
  EXPECT_DOUBLE_EQ(run.heard.epoch_rmse, last.values[0].value());
  EXPECT_NEAR(last.values[0].value(), std::sqrt(last.loss), 1e-6);  // of one set of outputs; float32 errors
  EXPECT_EQ(last.accuracy, 0) << "the loss counts nothing as correct";
  const Metrics& validation = run.heard.epochs.back().validation;
  EXPECT_EQ(validation.samples, 11);
  EXPECT_NEAR(validation.values.at(0).value(), std::sqrt(validation.loss), 1e-6);
}

TEST_P(OwnLossTest, AForgottenEffectiveBatchIsNotCounted) {
  Model model(runtime(), device(), testing::regression_network(), {.seed = 5});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, regression(true));
  RegressionSource data(8, 8);
  Batch batch;
  ASSERT_TRUE(data.next(model.context(Pass::train), batch));
  step.micro_batch(batch, 0, 16);
  step.discard();
  step.step(batch);
  const std::vector<Metrics> metrics = step.read_metrics();
  ASSERT_EQ(metrics.size(), 1u);
  EXPECT_EQ(metrics[0].samples, 8);
  EXPECT_EQ(metrics[0].values.at(0).sums[1], 16);
  step.evaluate(batch);
  step.warm_up(8, false);  // which changes nothing
  EXPECT_EQ(step.read_evaluation().values.at(0).sums[1], 16);
  EXPECT_EQ(step.read_evaluation().samples, 0) << "they were read";
}

/// Fails once, after the loss and the metrics before it have counted.
class FailsOnce : public testing::RootMeanSquaredError {
 public:
  std::string_view kind() const override { return "fails_once"; }
  void accumulate(const Context& context, const Tensor& output, const TensorMap& batch,
                  const DeviceSums& to) const override {
    if (!failed_) {
      failed_ = true;
      throw OutOfMemory("none left", {});
    }
    RootMeanSquaredError::accumulate(context, output, batch, to);
  }

 private:
  mutable bool failed_ = false;
};

TEST_P(OwnLossTest, AnEvaluatedBatchThatFailsIsCountedOnceWhenItIsRepeated) {
  LossOptions loss = regression(true);
  loss.metrics.push_back(std::make_shared<FailsOnce>());
  Model model(runtime(), device(), testing::regression_network(), {.seed = 5});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, loss);
  RegressionSource data(8, 8);
  Batch batch;
  ASSERT_TRUE(data.next(model.context(Pass::train), batch));
  MicroBatches(step).evaluate(batch, true);  // whole, then in two micro-batches
  const Metrics metrics = step.read_evaluation();
  EXPECT_EQ(metrics.samples, 8);
  ASSERT_EQ(metrics.values.size(), 2u);
  for (const MetricValue& value : metrics.values) EXPECT_EQ(value.sums[1], 16) << value.name();
  EXPECT_EQ(metrics.values[0].value(), metrics.values[1].value());
}

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_P(OwnLossTest, WhatDoesNotFitIsSaidBeforeAnythingRuns) {
  Model classifier(runtime(), device(), testing::small_network(), {}),
      images(runtime(), device(), Graph({4, 4, 2}), {});
  Model model(runtime(), device(), testing::regression_network(), {});
  Optimizer optimizer(model, {}), of_classifier(classifier, {});
  Graph rows({4, 4, 2});
  rows.add(reshape({.shape = {8, 4}}));
  Model of_rows(runtime(), device(), rows, {});
  EXPECT_EQ(
      error_of([&] { TrainingStep(of_rows, optimizer, {}); }),
      "a model ends with one value a class, as that of dense: {units: classes}, or with (height, width, classes); "
      "this ends with (8, 4); put global_average_pool or flatten before its end");
  TrainingStep of_pixels(images, optimizer, {});
  testing::MemorySource a_label_an_image({4, 4, 2}, 2, 8, 8);
  EXPECT_EQ(error_of([&] { Trainer(of_pixels, a_label_an_image, nullptr, {}); }),
            "the training data's 'labels' are (), expected (4, 4)");
  EXPECT_EQ(error_of([&] { TrainingStep(images, optimizer, regression(true)); }),
            "mse: expected an output of (values), got (4, 4, 2)");
  TrainingStep step(model, optimizer, regression(true)), of_classes(classifier, of_classifier, {});
  testing::MemorySource labels({3, 2, 1}, 2, 8, 8), seven({8, 8, 3}, 7, 8, 8);
  RegressionSource floats(8, 8);
  EXPECT_EQ(error_of([&] { Trainer(step, labels, nullptr, {}); }),
            "the training data have no 'targets', which the loss or a metric reads");
  EXPECT_EQ(error_of([&] { Trainer(step, floats, &labels, {}); }),
            "the validation data have no 'targets', which the loss or a metric reads");
  EXPECT_EQ(error_of([&] { Trainer(of_classes, seven, nullptr, {}); }),
            "the training data have 7 classes, the model has 5");
  EXPECT_EQ(error_of([&] { Trainer(of_classes, floats, nullptr, {}); }),
            "the training data have images (3, 2, 1), the model expects (8, 8, 3)");
  const std::vector<TensorFacts> wrong = {{.name = "images", .shape = {3, 2, 1}},
                                          {.name = "targets", .shape = {2}, .dtype = DType::float16}};
  EXPECT_EQ(error_of([&] { step.check_fits(wrong, "training"); }),
            "the training data's 'targets' are of float16, expected float32");
}

TEST(OwnLoss, PlansOfOneThatDoesNotSupportMetaDevicesAreRefusedByItsName) {
  const std::string error =
      error_of([] { (void)plan_step(testing::regression_network(), {.loss = regression(false), .batch = 4}); });
  EXPECT_NE(error.find("the loss 'mean_squared_error' does not support meta devices"), std::string::npos) << error;
  EXPECT_GT(plan_step(testing::regression_network(), {.loss = regression(true), .batch = 4}).peak_bytes, 0u);
}

TEST(OwnLoss, RandomBatchesHaveWhatTheLossReads) {
  Runtime runtime({.threads = 1});
  const Model model(runtime, Device::cpu(), testing::regression_network(), {});
  const Batch batch = random_batch(model, 6, philox_key(1, RandomPurpose::dataset), regression(true));
  EXPECT_EQ(batch.at("targets").shape(), (Shape{6, 2}));
  EXPECT_EQ(batch.at("targets").dtype(), DType::float32);
  EXPECT_EQ(batch.tensors.find(kLabels), nullptr);
  const std::vector<float> values = to_host<float>(batch.at("targets"), runtime.stream(Device::cpu()));
  EXPECT_TRUE(std::ranges::all_of(values, [](float v) { return std::abs(v) < 1.7321f; }));
  EXPECT_NE(values.front(), values.back());
}

/// w -= learning_rate·sign(g + weight_decay·w), with a count of updates in a slot; on the CPU.
class SignDescent : public UpdateRule {
 public:
  explicit SignDescent(float rate) : rate_(rate) {}
  std::string_view kind() const override { return "sign_descent"; }
  UpdateValues values() const override { return {.learning_rate = rate_}; }
  int slots() const override { return 3; }
  bool supports_meta() const override { return true; }
  void apply(const Context& context, const UpdateCall& call) const override {
    if (context.device.meta || call.control->found_nonfinite != 0) return;
    for (const UpdateRange& range : call.ranges)
      for (std::int64_t i = range.begin; i < range.begin + range.elements; ++i) {
        const kernels::UpdateGroup& group = call.groups[range.group];
        const float g = call.gradient[i] * call.control->gradient_factor + group.weight_decay * call.master[i];
        call.master[i] -= group.learning_rate * static_cast<float>((g > 0) - (g < 0));
        call.slots[2][i] += 1.0f;
      }
  }

 private:
  float rate_;
};

OptimizerOptions sign_descent(float rate) { return {.rule = std::make_shared<SignDescent>(rate)}; }

TEST(OwnRule, MovesTheWeightsAndKeepsItsStateInTheArena) {
  Runtime runtime({.threads = 1});
  Model model(runtime, Device::cpu(), testing::small_network(), {.seed = 2});
  Optimizer optimizer(model, sign_descent(0.25f));
  EXPECT_EQ(optimizer.options().rule->slots(), 3);
  TrainingStep step(model, optimizer, {});
  const Stream stream = runtime.stream(Device::cpu());
  const Parameter& head = *model.parameters().find("head/bias");
  const std::vector<float> before = to_host<float>(head.master(), stream),
                           running = to_host<float>(model.buffers().current(), stream);
  step.step(testing::make_batch(model.context(Pass::train), {8, 8, 3}, 5, 0, 8));
  const std::vector<float> after = to_host<float>(head.master(), stream),
                           gradient = to_host<float>(head.gradient(), stream);
  for (std::size_t i = 0; i < after.size(); ++i)
    EXPECT_EQ(after[i], before[i] - 0.25f * static_cast<float>((gradient[i] > 0) - (gradient[i] < 0)));
  EXPECT_NE(to_host<float>(model.buffers().current(), stream), running) << "running statistics move as with any rule";
  StateRegistry state;
  optimizer.register_state(state);
  const auto third = std::ranges::find(state.tensors(), "optimizer/moment3/" + head.name(), &StateEntry::name);
  ASSERT_NE(third, state.tensors().end());
  const Tensor counted = third->tensor.view({third->tensor.elements()}).slice(0, {1});
  EXPECT_EQ(to_host<float>(counted, stream)[0], 1.0f);
}

TEST(OwnRule, ReadsGradientsThatAreClipped) {
  Runtime runtime({.threads = 1});
  Model model(runtime, Device::cpu(), testing::small_network(), {.seed = 2});
  class Copies : public SignDescent {
   public:
    using SignDescent::SignDescent;
    void apply(const Context& context, const UpdateCall& call) const override {
      for (const UpdateRange& range : call.ranges)
        for (std::int64_t i = range.begin; i < range.begin + range.elements && !context.device.meta; ++i)
          call.slots[0][i] = call.gradient[i] * call.control->gradient_factor;
    }
  };
  Optimizer optimizer(model, {.rule = std::make_shared<Copies>(1e-3f), .clip_value = 1e-3f});
  TrainingStep step(model, optimizer, {});
  step.step(testing::make_batch(model.context(Pass::train), {8, 8, 3}, 5, 0, 8));
  StateRegistry state;
  optimizer.register_state(state);
  const auto read = std::ranges::find(state.tensors(), "optimizer/moment1/head/weight", &StateEntry::name);
  ASSERT_NE(read, state.tensors().end());
  const Stream stream = runtime.stream(Device::cpu());
  const std::vector<float> clipped = to_host<float>(read->tensor, stream),
                           whole = to_host<float>(std::as_const(*model.parameters().find("head/weight")).gradient(),
                                                  stream);
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(clipped[i], std::clamp(whole[i], -1e-3f, 1e-3f));
  EXPECT_TRUE(std::ranges::any_of(whole, [](float g) { return std::abs(g) > 1e-3f; }));
}

TEST(OwnRule, TrainsToTheSameBitsPlannedAndEager) {
  const Outcome eager = train(Device::cpu(), StepMode::eager, regression(true), sign_descent(0.005f));
  const Outcome planned = train(Device::cpu(), StepMode::planned, regression(true), sign_descent(0.005f));
  EXPECT_EQ(planned.weights, eager.weights);
  EXPECT_EQ(planned.memory.departures, 0u);
  EXPECT_LT(eager.heard.epochs.back().train.loss, eager.heard.epochs.front().train.loss);
}

TEST(OwnRule, AnUpdateThatIsNotFiniteChangesNothing) {
  Runtime runtime({.threads = 1});
  Model model(runtime, Device::cpu(), testing::small_network(), {.seed = 2});
  Optimizer optimizer(model, sign_descent(0.25f));
  TrainingStep step(model, optimizer, {});
  const Stream stream = runtime.stream(Device::cpu());
  const std::vector<float> before = to_host<float>(model.parameters().master(), stream);
  Batch batch = testing::make_batch(model.context(Pass::train), {8, 8, 3}, 5, 0, 4);
  batch.at(kImages).as<float>()[0] = std::numeric_limits<float>::infinity();
  step.step(batch);
  EXPECT_EQ(optimizer.control().skipped, 1);
  EXPECT_EQ(to_host<float>(model.parameters().master(), stream), before);
}

}  // namespace
}  // namespace bantam::own_loss_test
