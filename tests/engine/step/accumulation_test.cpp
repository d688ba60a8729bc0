// An effective batch in several batches: the same gradient as in one, the samples that it counts, and what is left of
// one that stops half way.
#include <optional>

#include "bantam/engine/step/training_step.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::accumulation_test {
namespace {

using testing::EngineTest;

class AccumulationTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(AccumulationTest);

struct Training {
  Training(Runtime& runtime, Device device)
      : model(runtime, device, testing::small_network(false), {.seed = 2}),
        optimizer(model, {.rule = sgd({.learning_rate = 0.1f})}),
        step(model, optimizer, {}),
        batches(step) {}
  Batch batch(std::int64_t first, std::int64_t samples) {
    return testing::make_batch(model.context(Pass::train), {8, 8, 3}, 5, first, samples);
  }
  std::vector<float> floats(const Tensor& tensor) {
    return to_host<float>(tensor, model.runtime().stream(model.device()));
  }
  std::vector<float> weights() { return floats(model.parameters().master()); }

  Model model;
  Optimizer optimizer;
  TrainingStep step;
  MicroBatches batches;
};

/// Batches of these sizes, one after another.
std::function<std::optional<Batch>(std::int64_t)> batches_of(Training& training, std::vector<std::int64_t> sizes) {
  return [&training, sizes](std::int64_t i) -> std::optional<Batch> {
    const auto at = static_cast<std::size_t>(i);
    std::int64_t first = 0;
    for (std::size_t j = 0; j < at; ++j) first += sizes[j];
    return training.batch(first, sizes[at]);
  };
}

/// Sums of float32 in another order: 12 samples of 4000 additions each, relative to the whole gradient.
constexpr double kReordered = 1e-5;

TEST_P(AccumulationTest, SeveralBatchesTrainWhatOneWould) {
  Training whole(runtime(), device()), cut(runtime(), device()), counted(runtime(), device());
  whole.batches.train(whole.batch(0, 12), 0, 12);
  EXPECT_TRUE(cut.batches.accumulate(3, 0, batches_of(cut, {4, 4, 4}))) << "0 samples: three times the first batch's";
  EXPECT_TRUE(counted.batches.accumulate(3, 12, batches_of(counted, {5, 5, 2}))) << "the last is short";
  for (Training* training : {&whole, &cut, &counted}) training->step.update();
  const std::vector<float> gradient = whole.floats(whole.model.parameters().gradient());
  for (Training* training : {&cut, &counted}) {
    EXPECT_LT(testing::relative_difference(training->floats(training->model.parameters().gradient()), gradient),
              kReordered);
    const std::vector<Metrics> metrics = training->step.read_metrics();
    ASSERT_EQ(metrics.size(), 1u) << "one update";
    EXPECT_EQ(metrics[0].samples, 12);
  }
}

TEST_P(AccumulationTest, TheWholeEffectiveBatchIsForgottenWhereABatchIsMissing) {
  Training stopped(runtime(), device()), plain(runtime(), device());
  const std::vector<float> start = stopped.weights();
  int asked = 0;
  EXPECT_FALSE(stopped.batches.accumulate(3, 12, [&](std::int64_t i) -> std::optional<Batch> {
    ++asked;
    if (i == 2) return std::nullopt;
    return stopped.batch(4 * i, 4);
  }));
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(stopped.weights(), start);
  for (Training* training : {&stopped, &plain}) training->step.step(training->batch(20, 8));
  EXPECT_EQ(stopped.weights(), plain.weights()) << "nothing was added to the next update's gradient";
  const std::vector<Metrics> metrics = stopped.step.read_metrics();
  ASSERT_EQ(metrics.size(), 1u);
  EXPECT_EQ(metrics[0].samples, 8);
}

TEST_P(AccumulationTest, EvaluatedBatchesCountEachSampleOnce) {
  Training training(runtime(), device());
  const std::vector<float> start = training.weights();
  training.batches.evaluate(training.batch(0, 7), false);
  training.batches.evaluate(training.batch(7, 4), false);
  const Metrics apart = training.step.read_evaluation();
  EXPECT_EQ(apart.samples, 11);
  training.batches.evaluate(training.batch(0, 11), false);
  const Metrics together = training.step.read_evaluation();
  EXPECT_EQ(together.samples, 11) << "sums were cleared by reading";
  EXPECT_EQ(together.accuracy, apart.accuracy);
  EXPECT_NEAR(together.loss, apart.loss, 1e-6 * together.loss);
  EXPECT_EQ(training.weights(), start);
}

}  // namespace
}  // namespace bantam::accumulation_test
