// When evaluations count as no improvement, and what of it is saved.
#include <cmath>

#include "bantam/engine/train/trainer.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::early_stop_test {
namespace {

using testing::MemorySource;

/// The evaluation, from 1, after which a run of such losses (or accuracies) ends; 0: it does not.
std::int64_t ends_after(const EarlyStopOptions& options, const std::vector<double>& values) {
  EarlyStopState state;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto epoch = static_cast<std::int64_t>(i) + 1;
    note_evaluation(options, {.loss = values[i], .accuracy = values[i], .samples = 8}, epoch, state);
    state = early_stop_from(early_stop_numbers(state));  // as a resumed run does
    if (stops_early(options, state)) return epoch;
  }
  return 0;
}

TEST(EarlyStopTest, WaitsForEvaluationsInARowWithoutImprovement) {
  EXPECT_EQ(ends_after({.patience = 2}, {5, 4, 4.5, 3, 3.5, 3, 2}), 6) << "as good as the best is no improvement";
  EXPECT_EQ(ends_after({.patience = 3}, {5, 4, 4.5, 3, 3.5, 3, 2}), 0);
  EXPECT_EQ(ends_after({.metric = "accuracy", .larger = true, .patience = 1}, {0.1, 0.3, 0.2}), 3);
  EXPECT_EQ(ends_after({.patience = 2, .min_delta = 0.5}, {5, 4.6, 4.4, 4.1, 3.95}), 5)
      << "4.4 is better by more than 0.5, 3.95 is not";
  EXPECT_EQ(ends_after({.patience = 2}, {NAN, 5, NAN, INFINITY}), 4) << "what is not finite is no improvement";
  EXPECT_EQ(ends_after({.patience = 2}, {NAN, NAN}), 2);
}

TEST(EarlyStopTest, AnotherMetricBeginsAnew) {
  EarlyStopState state;
  const EarlyStopOptions loss{.patience = 1}, accuracy{.metric = "accuracy", .larger = true, .patience = 1};
  for (std::int64_t epoch = 1; epoch < 3; ++epoch) note_evaluation(loss, {.loss = 2, .samples = 1}, epoch, state);
  EXPECT_TRUE(stops_early(loss, state));
  EXPECT_FALSE(stops_early(accuracy, state)) << "it has watched something else";
  EXPECT_EQ(early_stop_reason(loss, state),
            "train.stop_early: validation loss has not improved for 1 evaluation; the best is 2, of epoch 1");
  note_evaluation(accuracy, {.accuracy = 0.5, .samples = 1}, 3, state);
  EXPECT_EQ(state.best, 0.5);
  EXPECT_EQ(early_stop_from({1, 2}), EarlyStopState()) << "of a file that has no such numbers";
}

TEST(EarlyStopTest, ATrainerEndsAfterTheEvaluation) {
  Runtime runtime({.threads = 2});
  Model model(runtime, Device::cpu(), testing::small_network(), {.seed = 2});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  MemorySource train({8, 8, 3}, 5, 32, 8), validation({8, 8, 3}, 5, 16, 8);
  // No value is better than the first by 100.
  const TrainerOptions options{.epochs = 9, .stop_early = EarlyStopOptions{.patience = 2, .min_delta = 100}};
  struct Last : Callback {
    void on_epoch_end(const EpochEvent& event) override { last.push_back(event.last); }
    std::vector<bool> last;
  } last;
  Trainer trainer(step, train, &validation, options);
  trainer.add(last);
  const TrainResult result = trainer.run();
  EXPECT_TRUE(result.stopped_early);
  EXPECT_FALSE(result.stopped);
  EXPECT_EQ(result.epochs, 3);
  EXPECT_EQ(result.epoch, 3);
  EXPECT_EQ(result.update, 0);
  EXPECT_EQ(last.last, (std::vector{false, false, true}));
  EXPECT_EQ(trainer.position().stop_early.waited, 2);
  TrainerOptions rest = options;  // with what a run in its middle has saved
  rest.first.epoch = 2;
  rest.first.stop_early = trainer.position().stop_early;
  rest.first.stop_early.waited = 1;
  EXPECT_EQ(Trainer(step, train, &validation, rest).run().epochs, 1);
  rest.evaluate = false;
  EXPECT_EQ(Trainer(step, train, &validation, rest).run().epochs, 7)
      << "without evaluations there is nothing to wait for";
}

}  // namespace
}  // namespace bantam::early_stop_test
