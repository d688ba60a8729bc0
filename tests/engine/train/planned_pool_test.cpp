// A Trainer within exactly the pool that was planned from its sources: training, short last batches, evaluations.
#include <gtest/gtest.h>

#include "bantam/engine/plan/step_plan.h"
#include "bantam/engine/train/trainer.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::planned_pool_test {
namespace {

using testing::EngineTest;

class PlannedPoolTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(PlannedPoolTest);

/// Two convolutions, whose workspaces in an evaluation do not lie where those of training do.
Graph network() {
  Graph graph({32, 32, 3});
  graph.add("conv", conv2d({.filters = 32, .padding = Padding::same(), .activation = {Activation::relu}}));
  graph.add("pool", max_pool());
  graph.add("conv2", conv2d({.filters = 32, .padding = Padding::same(), .activation = {Activation::relu}}));
  graph.add(flatten());
  graph.add("head", dense({.units = 10}));
  return graph;
}

/// As a program would write it: each batch copied from its own memory.
class OwnBatches : public BatchSource {
 public:
  OwnBatches(std::int64_t samples, std::int64_t batch) : samples_(samples), batch_(batch) {}
  std::vector<TensorFacts> tensors() const override {
    return {{.name = std::string(kImages), .shape = {32, 32, 3}},
            {.name = std::string(kLabels), .dtype = DType::int32, .classes = 10}};
  }
  std::int64_t batch_size() const override { return batch_; }
  std::int64_t batches_per_epoch() const override { return (samples_ + batch_ - 1) / batch_; }
  std::int64_t size_of(std::int64_t index) const override { return std::min(batch_, samples_ - index * batch_); }
  void start(std::int64_t, std::int64_t first) override { next_ = first; }
  bool next(const Context& context, Batch& batch) override {
    if (next_ >= batches_per_epoch()) return false;
    const std::int64_t size = size_of(next_);
    const std::vector<float> images(static_cast<std::size_t>(size * 32 * 32 * 3), 0.5f);
    const std::vector<std::int32_t> labels(static_cast<std::size_t>(size), 1);
    batch = {.tensors = {{kImages, context.upload({size, 32, 32, 3}, images.data())},
                         {kLabels, context.upload({size}, labels.data())}},
             .size = size,
             .index = next_++};
    return true;
  }

 private:
  std::int64_t samples_, batch_, next_ = 0;
};

struct Case {
  std::int64_t samples, batch, held_out, evaluated_batch, accumulate;
  std::optional<EvaluationViews> views = std::nullopt;
};

/// With so many bytes as limit, reserved before the model is made or as they are needed.
MemoryStats train(Device device, const Case& at, std::uint64_t pool_bytes, StepMode mode, bool reserves = true) {
  Runtime runtime({.threads = 2, .budgets = {{to_string(device), pool_bytes}}});
  if (reserves) runtime.reserve(device, pool_bytes);
  Model model(runtime, device, network(), {.seed = 1});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {.views = at.views});
  OwnBatches data(at.samples, at.batch), validation(at.held_out, at.evaluated_batch);
  Trainer trainer(step, data, &validation, {.epochs = 3, .accumulate = at.accumulate, .mode = mode});
  EXPECT_EQ(trainer.run().epochs, 3);
  return runtime.allocator(device).stats();
}

TEST_P(PlannedPoolTest, ATrainerThatEvaluatesNeedsWhatWasPlanned) {
  for (const Case& at :
       {Case{128, 32, 64, 32, 1}, Case{128, 32, 100, 64, 1}, Case{100, 32, 50, 16, 1}, Case{100, 16, 40, 48, 2},
        Case{96, 32, 20, 40, 1}, Case{128, 32, 100, 32, 1, EvaluationViews{}},
        Case{64, 16, 100, 32, 1, EvaluationViews{.share = 0.5}},
        Case{64, 16, 300, 32, 1, EvaluationViews{.padding = 1, .crops = {{0, 0}}, .share = 0.1}}}) {
    const OwnBatches data(at.samples, at.batch), validation(at.held_out, at.evaluated_batch);
    const StepPlanOptions options =
        for_sources({.loss = {.views = at.views}, .accumulate = at.accumulate, .device = device()}, data, &validation);
    const StepPlan plan = plan_step(network(), options);
    for (const StepMode mode : {StepMode::planned, StepMode::captured}) {
      MemoryStats stats;
      ASSERT_NO_THROW(stats = train(device(), at, plan.pool_bytes, mode))
          << "batch " << at.batch << ", evaluated in " << at.evaluated_batch << ", pool " << plan.pool_bytes;
      EXPECT_LE(stats.peak_pool_bytes, plan.pool_bytes);
      EXPECT_EQ(stats.departures, 0u);
      EXPECT_NO_THROW((void)train(device(), at, plan.pool_bytes, mode, false)) << "not reserved";
    }
    EXPECT_TRUE(step_fits(network(), options, plan.pool_bytes));
  }
}

TEST_P(PlannedPoolTest, EvaluationsOfLargerBatchesArePartOfThePlan) {
  const OwnBatches data(64, 8), validation(256, 128);
  const StepPlanOptions alone{.batch = 8, .device = device()};
  const StepPlan training = plan_step(network(), alone),
                 both = plan_step(network(), for_sources(alone, data, &validation));
  EXPECT_GT(both.pool_bytes, training.pool_bytes);
  EXPECT_GT(both.peak_bytes, training.peak_bytes);
  EXPECT_EQ(both.moment.phase, "evaluation");
  EXPECT_EQ(both.step_peak_bytes, training.step_peak_bytes) << "the step is the same";
  EXPECT_LE(both.peak_bytes, both.pool_bytes);
  EXPECT_THROW((void)train(device(), {64, 8, 256, 128, 1}, training.pool_bytes, StepMode::planned), OutOfMemory);
}

TEST(PlannedPool, SizesAreThoseOfTheSources) {
  const OwnBatches data(100, 32), validation(50, 25), test(7, 16);
  const StepPlanOptions options = for_sources({.batch = 1, .evaluation_batches = {3}}, data, &validation, &test);
  EXPECT_EQ(options.batch, 32);
  EXPECT_EQ(options.last_batches, (std::vector<std::int64_t>{4}));
  EXPECT_EQ(options.evaluation_batches, (std::vector<std::int64_t>{25, 7}));
  EXPECT_THROW((void)plan_step(network(), {.batch = 4, .evaluation_batches = {0}}), Error);
}

}  // namespace
}  // namespace bantam::planned_pool_test
