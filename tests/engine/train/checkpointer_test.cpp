// The trainer's positions: a checkpointer's, an early end's, and metrics of an epoch that was resumed.
#include <memory>

#include "bantam/engine/train/trainer.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::checkpointer_test {
namespace {

using testing::EngineTest;
using testing::MemorySource;

class CheckpointerTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(CheckpointerTest);

struct TrainedModel {
  TrainedModel(Runtime& runtime, Device device)
      : model(runtime, device, testing::small_network(), {.seed = 2}),
        optimizer(model, {}),
        step(model, optimizer, {}) {}
  std::vector<float> weights() {
    return to_host<float>(model.parameters().master(), model.runtime().stream(model.device()));
  }
  Model model;
  Optimizer optimizer;
  TrainingStep step;
};

struct Epochs : Callback {
  bool observes() const override { return true; }
  void on_progress(const ProgressEvent& event) override { heard = event.update; }
  void on_epoch_end(const EpochEvent& event) override { events.push_back(event), heard = 0; }
  std::vector<EpochEvent> events;
  std::int64_t heard = 0;
};

/// Saves where it is told to, and compares what it hears.
struct Recorder : Checkpointer {
  bool due(std::int64_t epoch, std::int64_t update) override {
    asked.emplace_back(epoch, update);
    copied = false;
    return every > 0 && (update == 0 || update % every == 0);
  }
  void copy() override {
    copied = true;
    if (model != nullptr) weights.push_back(model->weights());
  }
  void save(const TrainerPosition& position) override {
    EXPECT_TRUE(copied) << "tensors are copied first";
    EXPECT_EQ(std::pair(position.epoch, position.update), asked.back());
    EXPECT_EQ(position.update, epochs->heard) << "callbacks have heard of all updates until there";
    saved.push_back(position);
  }
  std::int64_t every = 0;
  TrainedModel* model = nullptr;
  Epochs* epochs = nullptr;
  bool copied = false;
  std::vector<std::pair<std::int64_t, std::int64_t>> asked;
  std::vector<TrainerPosition> saved;
  std::vector<std::vector<float>> weights;
};

TEST_P(CheckpointerTest, IsAskedAfterEveryLaunchAndEveryEpoch) {
  TrainedModel setup(runtime(), device());
  MemorySource train({8, 8, 3}, 5, 40, 8), validation({8, 8, 3}, 5, 16, 8);
  Recorder recorder;
  Epochs epochs;
  recorder.every = 2, recorder.epochs = &epochs;
  Trainer trainer(setup.step, train, &validation, {.epochs = 2, .read_seconds = 1e9, .checkpointer = &recorder});
  trainer.add(epochs);
  (void)trainer.run();
  using Asked = std::vector<std::pair<std::int64_t, std::int64_t>>;
  EXPECT_EQ(recorder.asked,
            (Asked{{0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}, {1, 0}, {1, 1}, {1, 2}, {1, 3}, {1, 4}, {1, 5}, {2, 0}}));
  ASSERT_EQ(recorder.saved.size(), 6u);
  EXPECT_EQ(recorder.saved[1].update, 4);
  EXPECT_EQ(recorder.saved[1].sum.samples, 32);
  EXPECT_EQ(recorder.saved[2].epoch, 1);
  EXPECT_EQ(recorder.saved[2].update, 0);
  EXPECT_EQ(recorder.saved[2].sum.samples, 0) << "the next epoch's begin";
}

TEST_P(CheckpointerTest, SavingChangesNothingAndEachPositionGoesOn) {
  TrainedModel undisturbed(runtime(), device()), saving(runtime(), device());
  MemorySource train({8, 8, 3}, 5, 44, 8);
  Epochs whole;
  Trainer all(undisturbed.step, train, nullptr, {.epochs = 2, .accumulate = 2});
  all.add(whole);
  (void)all.run();
  Recorder recorder;
  Epochs epochs;
  recorder.every = 1, recorder.model = &saving, recorder.epochs = &epochs;
  Trainer trainer(saving.step, train, nullptr, {.epochs = 2, .accumulate = 2, .checkpointer = &recorder});
  trainer.add(epochs);
  (void)trainer.run();
  EXPECT_EQ(saving.weights(), undisturbed.weights());
  ASSERT_EQ(recorder.saved.size(), 8u) << "three updates and an end, twice";
  for (std::size_t i = 0; i + 1 < recorder.saved.size(); ++i) {
    const TrainerPosition& from = recorder.saved[i];
    TrainedModel resumed(runtime(), device());
    Epochs rest;
    // The weights of a position are those of a new run that ends there.
    Trainer until(resumed.step, train, nullptr,
                  {.epochs = 2, .accumulate = 2, .max_updates = from.epoch * 3 + from.update});
    (void)until.run();
    EXPECT_EQ(resumed.weights(), recorder.weights[i]) << i;
    Trainer go_on(resumed.step, train, nullptr, {.epochs = 2, .accumulate = 2, .first = from});
    go_on.add(rest);
    (void)go_on.run();
    EXPECT_EQ(resumed.weights(), undisturbed.weights()) << i;
    ASSERT_FALSE(rest.events.empty());
    const Metrics& train_metrics = rest.events.back().train;
    EXPECT_EQ(train_metrics.samples, 44);
    EXPECT_EQ(train_metrics.loss, whole.events.back().train.loss) << i;
    EXPECT_EQ(train_metrics.accuracy, whole.events.back().train.accuracy) << i;
  }
}

TEST_P(CheckpointerTest, ImagesPerSecondAreOfThisSession) {
  TrainedModel setup(runtime(), device());
  MemorySource train({8, 8, 3}, 5, 40, 8);
  Trainer trainer(setup.step, train, nullptr,
                  {.first = {.update = 4, .sum = {.loss = 1, .accuracy = 0, .samples = 32}}});
  const TrainResult result = trainer.run();
  EXPECT_EQ(result.train.samples, 40);
  EXPECT_DOUBLE_EQ(result.images_per_second, 8 / result.seconds);
}

TEST_P(CheckpointerTest, MaxUpdatesIsExact) {
  MemorySource train({8, 8, 3}, 5, 40, 8), validation({8, 8, 3}, 5, 16, 8);
  struct Case {
    std::int64_t most, updates, epoch, update;
    bool reached;
    std::size_t evaluations;
  };
  for (const Case& given : {Case{1, 1, 0, 1, true, 0}, Case{4, 4, 0, 4, true, 0}, Case{5, 5, 1, 0, true, 1},
                            Case{7, 7, 1, 2, true, 1}, Case{15, 15, 3, 0, false, 3}, Case{99, 15, 3, 0, false, 3}}) {
    TrainedModel setup(runtime(), device());
    Epochs epochs;
    Trainer trainer(setup.step, train, &validation, {.epochs = 3, .max_updates = given.most});
    trainer.add(epochs);
    const TrainResult result = trainer.run();
    EXPECT_EQ(result.updates, given.updates) << given.most;
    EXPECT_EQ(setup.optimizer.control().updates, given.updates) << given.most;
    EXPECT_EQ(result.epoch, given.epoch) << given.most;
    EXPECT_EQ(result.update, given.update) << given.most;
    EXPECT_EQ(result.reached_max_updates, given.reached) << given.most;
    EXPECT_FALSE(result.stopped) << given.most;
    EXPECT_EQ(epochs.events.size(), given.evaluations) << given.most;
  }
}

TEST_P(CheckpointerTest, MaxUpdatesCountFromTheRunsBeginning) {
  TrainedModel setup(runtime(), device());
  MemorySource train({8, 8, 3}, 5, 40, 8);
  Trainer trainer(setup.step, train, nullptr, {.epochs = 3, .first = {.epoch = 1, .update = 1}, .max_updates = 8});
  const TrainResult result = trainer.run();
  EXPECT_EQ(result.updates, 2);
  EXPECT_EQ(result.update, 3);
  EXPECT_TRUE(result.reached_max_updates);
}

}  // namespace
}  // namespace bantam::checkpointer_test
