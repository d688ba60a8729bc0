// The trainer: epochs, accumulation, short last batches, progress, stopping and going on, divergence.
#include "bantam/engine/train/trainer.h"

#include <chrono>
#include <optional>
#include <thread>

#include "bantam/base/error.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::trainer_test {
namespace {

using testing::EngineTest;
using testing::MemorySource;

class TrainerTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(TrainerTest);

struct TrainedModel {
  TrainedModel(Runtime& runtime, Device device, OptimizerOptions options = {}, Precision precision = {})
      : model(runtime, device, testing::small_network(), {.precision = precision, .seed = 2}),
        optimizer(model, options),
        step(model, optimizer, {}) {}
  std::vector<float> weights() {
    return to_host<float>(model.parameters().master(), model.runtime().stream(model.device()));
  }
  Model model;
  Optimizer optimizer;
  TrainingStep step;
};

/// Counts what it hears.
struct Recorder : Callback {
  void on_progress(const ProgressEvent& event) override {
    updates += static_cast<std::int64_t>(event.metrics.size());
    for (const Metrics& m : event.metrics) samples += m.samples;
    if (stop_at > 0 && updates >= stop_at) trainer->request_stop();
  }
  void on_epoch_end(const EpochEvent& event) override { epochs.push_back(event); }
  std::int64_t updates = 0, samples = 0, stop_at = 0;
  Trainer* trainer = nullptr;
  std::vector<EpochEvent> epochs;
};

TEST_P(TrainerTest, EpochsCoverAllSamplesAndReportThem) {
  TrainedModel setup(runtime(), device());
  MemorySource train({8, 8, 3}, 5, 70, 16), validation({8, 8, 3}, 5, 21, 16);
  Trainer trainer(setup.step, train, &validation, {.epochs = 2, .accumulate = 2});
  Recorder recorder;
  trainer.add(recorder);
  const TrainResult result = trainer.run();
  EXPECT_EQ(result.epochs, 2);
  EXPECT_EQ(result.updates, 6);  // five batches of 16, 16, 16, 16, 6 in updates of two
  EXPECT_EQ(recorder.updates, 6);
  EXPECT_EQ(recorder.samples, 140);
  ASSERT_EQ(recorder.epochs.size(), 2u);
  EXPECT_EQ(recorder.epochs[1].train.samples, 70);
  EXPECT_EQ(recorder.epochs[1].validation.samples, 21);
  EXPECT_TRUE(recorder.epochs[1].last);
  EXPECT_LT(recorder.epochs[1].train.loss, recorder.epochs[0].train.loss);
  EXPECT_EQ(setup.optimizer.control().updates, 6);
}

/// A norm of the images themselves, whose statistics no weight changes.
Graph norm_first(std::optional<float> rate) {
  Graph graph({8, 8, 3});
  graph.add("norm", batch_norm({.rate = rate, .scale = false, .shift = false}));
  graph.add("flatten", flatten());
  graph.add("head", dense({.units = 5}));
  return graph;
}

TEST_P(TrainerTest, AShortBatchMovesRunningStatisticsByItsShare) {
  const auto mean_after = [&](std::optional<float> rate, std::int64_t samples, std::int64_t batch, StepMode mode) {
    Model model(runtime(), device(), norm_first(rate), {.seed = 2});
    Optimizer optimizer(model, {});
    TrainingStep step(model, optimizer, {});
    MemorySource train({8, 8, 3}, 5, samples, batch);
    (void)Trainer(step, train, nullptr, {.epochs = 1, .mode = mode}).run();
    const Buffer& mean = *model.buffers().find("norm/running_mean");
    return to_host<float>(model.buffers().current(mean), runtime().stream(device()));
  };
  const std::vector<float> before = mean_after(0.5f, 32, 16, StepMode::eager),
                           after = mean_after(0.5f, 33, 16, StepMode::eager),
                           of_33 = mean_after(1.0f, 33, 33, StepMode::eager),
                           of_32 = mean_after(1.0f, 32, 32, StepMode::eager);
  for (std::size_t c = 0; c < 3; ++c) {
    const float last = 33 * of_33[c] - 32 * of_32[c];  // the one sample of the last batch
    EXPECT_NEAR(after[c] - before[c], 0.5f / 16 * (last - before[c]), 1e-5f);
  }
  for (const std::optional<float> rate : {std::optional<float>(0.5f), std::optional<float>()})
    for (const StepMode mode : {StepMode::planned, StepMode::captured})
      EXPECT_EQ(mean_after(rate, 33, 16, mode), mean_after(rate, 33, 16, StepMode::eager));
  // Without a rate of its own a norm warms up: after one batch it has that batch's statistics, and nothing of the 0.
  EXPECT_EQ(mean_after(std::nullopt, 33, 33, StepMode::eager), of_33);
}

/// Batches that take their time.
class SlowSource : public MemorySource {
 public:
  using MemorySource::MemorySource;
  bool next(const Context& context, Batch& batch) override {
    std::this_thread::sleep_for(kPause);
    return MemorySource::next(context, batch);
  }
  static constexpr std::chrono::milliseconds kPause{5};
};

/// Metrics are read later than their updates have run, two readings after another at an epoch's end.
TEST_P(TrainerTest, RatesAreOfTheTimeThatUpdatesTook) {
  TrainedModel setup(runtime(), device());
  SlowSource train({8, 8, 3}, 5, 80, 8);
  Trainer trainer(setup.step, train, nullptr, {.epochs = 3, .read_seconds = 0.02, .mode = StepMode::planned});
  struct Rates : Callback {
    bool observes() const override { return true; }
    void on_progress(const ProgressEvent& event) override { rates.push_back(event.images_per_second); }
    std::vector<double> rates;
  } heard;
  trainer.add(heard);
  (void)trainer.run();
  ASSERT_GT(heard.rates.size(), 3u);
  const double most = 8 / std::chrono::duration<double>(SlowSource::kPause).count();
  for (const double rate : heard.rates) EXPECT_LE(rate, most * (device().is_cuda() ? 2 : 1.001));
}

/// Values of the updates that were done.
struct Values : Callback {
  void on_progress(const ProgressEvent& event) override {
    for (const UpdateReport& update : event.values) rates.push_back(update.learning_rate);
  }
  std::vector<float> rates;
};

/// Falls by halves each epoch, and notes what it was made for.
ScheduleMaker halves(ScheduleFacts& made_for) {
  return [&made_for](const ScheduleFacts& run) -> Schedule {
    made_for = run;
    return
        [run](std::int64_t n) { return std::ldexp(run.learning_rate, -static_cast<int>(n / run.updates_per_epoch)); };
  };
}

TEST_P(TrainerTest, TheOptimizersSchedulesAreApplied) {
  for (const StepMode mode : {StepMode::eager, StepMode::captured}) {
    ScheduleFacts facts;
    TrainedModel setup(runtime(), device(),
                       {.rule = adam({.learning_rate = 0.5f}), .schedules = {.learning_rate = halves(facts)}});
    MemorySource train({8, 8, 3}, 5, 64, 16);
    Trainer trainer(setup.step, train, nullptr, {.epochs = 3, .accumulate = 2, .mode = mode});
    Values values;
    trainer.add(values);
    (void)trainer.run();
    EXPECT_EQ(facts.updates, 6);
    EXPECT_EQ(facts.updates_per_epoch, 2);
    EXPECT_EQ(values.rates, (std::vector<float>{0.5f, 0.5f, 0.25f, 0.25f, 0.125f, 0.125f}));
  }
}

TEST_P(TrainerTest, OptionsComeBeforeTheOptimizersSchedules) {
  ScheduleFacts rate, decay;
  const OptimizerOptions options{.rule = adam({.learning_rate = 0.5f}),
                                 .schedules = {.learning_rate = halves(rate), .weight_decay = halves(decay)}};
  MemorySource train({8, 8, 3}, 5, 32, 16);
  TrainedModel own(runtime(), device(), options), none(runtime(), device(), options);
  Values of_own, of_none;
  Trainer first(own.step, train, nullptr,
                {.schedules = UpdateSchedules{.learning_rate = [](std::int64_t) { return 0.01f; }}});
  first.add(of_own);
  (void)first.run();
  EXPECT_EQ(of_own.rates, (std::vector<float>{0.01f, 0.01f}));
  EXPECT_EQ(rate.updates, 0) << "it is not made";
  EXPECT_EQ(decay.updates, 0) << "nor is the other one";
  Trainer second(none.step, train, nullptr, {.epochs = 2, .schedules = UpdateSchedules{}});
  second.add(of_none);
  (void)second.run();
  EXPECT_EQ(of_none.rates, (std::vector<float>(4, 0.5f)));
}

/// Falls to a tenth after each evaluation.
class Tenths : public EvaluatedSchedule {
 public:
  std::string_view metric() const override { return "loss"; }
  void evaluated(const Metrics&) override { rate /= 10; }
  std::vector<double> state() const override { return {}; }
  void set_state(const std::vector<double>&) override {}
  float rate = 1e-2f;
};

TEST_P(TrainerTest, EvaluationsMoveTheOptimizersSchedules) {
  OptimizerOptions options;
  options.schedules.learning_rate = [](const ScheduleFacts&) -> Schedule {
    const auto tenths = std::make_shared<Tenths>();
    return {[tenths](std::int64_t) { return tenths->rate; }, tenths};
  };
  TrainedModel setup(runtime(), device(), options);
  MemorySource train({8, 8, 3}, 5, 32, 16), validation({8, 8, 3}, 5, 16, 16);
  Trainer trainer(setup.step, train, &validation, {.epochs = 2});
  Values values;
  trainer.add(values);
  (void)trainer.run();
  EXPECT_EQ(values.rates, (std::vector<float>{1e-2f, 1e-2f, 1e-2f / 10, 1e-2f / 10}));
}

TEST_P(TrainerTest, StoppingAndGoingOnIsTheSameAsNotStopping) {
  TrainedModel whole(runtime(), device()), parts(runtime(), device());
  MemorySource train({8, 8, 3}, 5, 64, 8);
  Trainer all(whole.step, train, nullptr, {.epochs = 3});
  (void)all.run();
  Recorder recorder;
  recorder.stop_at = 11;
  Trainer first(parts.step, train, nullptr, {.epochs = 3, .read_every = 1});
  recorder.trainer = &first;
  first.add(recorder);
  const TrainResult stopped = first.run();
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.epoch, 1);
  EXPECT_EQ(stopped.update, 3);
  Trainer second(parts.step, train, nullptr,
                 {.epochs = 3, .first = {.epoch = stopped.epoch, .update = stopped.update}});
  EXPECT_FALSE(second.run().stopped);
  EXPECT_EQ(whole.weights(), parts.weights());
}

TEST_P(TrainerTest, AnEpochLongerThanTheMetricRing) {
  TrainedModel setup(runtime(), device());
  MemorySource train({8, 8, 3}, 5, 150, 1);
  Trainer trainer(setup.step, train, nullptr, {.read_seconds = 1e9});
  Recorder recorder;
  trainer.add(recorder);
  (void)trainer.run();
  EXPECT_EQ(recorder.updates, 150);
}

TEST_P(TrainerTest, DivergenceStopsWithAnError) {
  TrainedModel setup(runtime(), device(), {.rule = sgd({.learning_rate = 1e30f})});
  MemorySource train({8, 8, 3}, 5, 800, 8);
  Trainer trainer(setup.step, train, nullptr, {.read_every = 4, .max_skipped_in_a_row = 10});
  EXPECT_THROW((void)trainer.run(), NotFiniteError);
  for (const float w : setup.weights()) ASSERT_FALSE(std::isnan(w));
}

TEST_P(TrainerTest, TheLossScaleGrowsAndShrinks) {
  OptimizerOptions options;
  options.initial_loss_scale = 1.0e6f;  // overflows float16 at once
  options.loss_scale_growth_interval = 4;
  TrainedModel setup(runtime(), device(), options, {PrecisionKind::mixed_float16});
  MemorySource train({8, 8, 3}, 5, 320, 8);
  Trainer trainer(setup.step, train, nullptr, {});
  (void)trainer.run();
  const kernels::UpdateControl control = setup.optimizer.control();
  EXPECT_GT(control.skipped, 0);
  EXPECT_EQ(control.updates + control.skipped, 40);
  EXPECT_LT(control.loss_scale, 1.0e6f);
  EXPECT_GE(control.loss_scale, 1.0f);
}

TEST_P(TrainerTest, ADivergedRunNeverEndsWell) {
  // Every update of this run is skipped before the first read: the guard must see those too.
  TrainedModel setup(runtime(), device(), {.rule = sgd({.learning_rate = 1e30f})});
  MemorySource train({8, 8, 3}, 5, 64 * 8, 8);
  Trainer trainer(setup.step, train, nullptr, {.read_seconds = 1e9});
  EXPECT_THROW((void)trainer.run(), NotFiniteError);
}

TEST_P(TrainerTest, AShortDivergedRunNeverEndsWell) {
  TrainedModel setup(runtime(), device(), {.rule = sgd({.learning_rate = 1e30f})});
  MemorySource train({8, 8, 3}, 5, 8 * 8, 8);
  Trainer trainer(setup.step, train, nullptr, {});
  EXPECT_THROW((void)trainer.run(), NotFiniteError);
}

TEST_P(TrainerTest, AStopBetweenEpochsKeepsTheLastResults) {
  struct StopAtEnd : Callback {
    void on_epoch_end(const EpochEvent&) override { trainer->request_stop(); }
    Trainer* trainer = nullptr;
  } stop;
  TrainedModel setup(runtime(), device());
  MemorySource train({8, 8, 3}, 5, 32, 8);
  Trainer trainer(setup.step, train, nullptr, {.epochs = 3});
  stop.trainer = &trainer;
  trainer.add(stop);
  const TrainResult result = trainer.run();
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.epoch, 1);
  EXPECT_EQ(result.update, 0);
  EXPECT_EQ(result.train.samples, 32);
}

/// Asks the trainer to stop when batch `stop_at` (from 1, over all starts) is fetched.
class StoppingSource : public MemorySource {
 public:
  using MemorySource::MemorySource;
  bool next(const Context& context, Batch& batch) override {
    if (++fetched == stop_at) trainer->request_stop();
    return MemorySource::next(context, batch);
  }
  std::int64_t fetched = 0, stop_at = 0;
  Trainer* trainer = nullptr;
};

TEST_P(TrainerTest, AStopIsHeardWithinOneBatchOfAnEvaluation) {
  TrainedModel setup(runtime(), device());
  MemorySource train({8, 8, 3}, 5, 32, 8);
  StoppingSource validation({8, 8, 3}, 5, 160, 8);
  Trainer trainer(setup.step, train, &validation, {.epochs = 1});
  validation.trainer = &trainer;
  validation.stop_at = 3;
  Recorder recorder;
  trainer.add(recorder);
  const TrainResult stopped = trainer.run();
  EXPECT_EQ(validation.fetched, 3) << "of 20 batches";
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.epoch, 0);
  EXPECT_EQ(stopped.update, 4) << "the evaluation is still to come";
  EXPECT_EQ(stopped.validation.samples, 0);
  EXPECT_TRUE(recorder.epochs.empty());

  const std::vector<float> weights = setup.weights();
  Trainer second(setup.step, train, &validation, {.epochs = 1, .first = {.epoch = 0, .update = 4}});
  second.add(recorder);
  const TrainResult rest = second.run();
  EXPECT_FALSE(rest.stopped);
  EXPECT_EQ(rest.epoch, 1);
  EXPECT_EQ(rest.updates, 0);
  EXPECT_EQ(rest.validation.samples, 160) << "the samples before the stop do not count twice";
  ASSERT_EQ(recorder.epochs.size(), 1u);
  EXPECT_EQ(recorder.epochs[0].train.samples, 0);
  EXPECT_EQ(setup.weights(), weights);
}

TEST_P(TrainerTest, AStopEndsAnEvaluationByHandEarlyAndLaterOnesAreWhole) {
  TrainedModel setup(runtime(), device());
  MemorySource train({8, 8, 3}, 5, 32, 8);
  StoppingSource validation({8, 8, 3}, 5, 160, 8);
  Trainer trainer(setup.step, train, nullptr, {});
  validation.trainer = &trainer;
  validation.stop_at = 3;
  EXPECT_EQ(trainer.evaluate(validation).samples, 24);
  EXPECT_EQ(trainer.evaluate(validation).samples, 160) << "asked for after the stop";
}

TEST_P(TrainerTest, AStopForgetsTheUpdateUnderWay) {
  TrainedModel whole(runtime(), device()), parts(runtime(), device());
  StoppingSource train({8, 8, 3}, 5, 128, 8);
  Trainer all(whole.step, train, nullptr, {.epochs = 1, .accumulate = 4});
  (void)all.run();
  Trainer first(parts.step, train, nullptr, {.epochs = 1, .accumulate = 4});
  train.fetched = 0;
  train.trainer = &first;
  train.stop_at = 6;  // the second of four in the second update
  const TrainResult stopped = first.run();
  EXPECT_EQ(train.fetched, 6);
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.update, 1);
  Trainer second(parts.step, train, nullptr, {.epochs = 1, .accumulate = 4, .first = {.update = stopped.update}});
  EXPECT_FALSE(second.run().stopped);
  EXPECT_EQ(whole.weights(), parts.weights());
}

/// Throws in the place of one batch.
class FailingSource : public MemorySource {
 public:
  using MemorySource::MemorySource;
  bool next(const Context& context, Batch& batch) override {
    if (fetched++ == fails_at) throw DataError("the camera is off");
    return MemorySource::next(context, batch);
  }
  std::int64_t fetched = 0, fails_at = -1;
};

/// The source fails at the second batch of the second update, and the program goes on with a step of its own: with the
/// bits of one that has never seen the batch before.
TEST_P(TrainerTest, ASourceThatFailsLeavesNothingOfTheUpdateUnderWay) {
  TrainedModel failed(runtime(), device()), whole(runtime(), device());
  FailingSource four({8, 8, 3}, 5, 32, 8);
  four.fails_at = 3;
  MemorySource two({8, 8, 3}, 5, 16, 8);
  Trainer first(failed.step, four, nullptr, {.accumulate = 2});
  EXPECT_THROW((void)first.run(), DataError);
  EXPECT_EQ(first.so_far().updates, 1);
  (void)Trainer(whole.step, two, nullptr, {.accumulate = 2}).run();
  for (TrainedModel* model : {&failed, &whole}) {
    (void)model->step.read_metrics();
    model->step.step(testing::make_batch(model->model.context(Pass::train), {8, 8, 3}, 5, 100, 8));
    EXPECT_EQ(model->step.read_metrics().at(0).samples, 8);
  }
  EXPECT_EQ(failed.weights(), whole.weights());
}

/// With images as they are, in views, and of two replicas: the next evaluation counts its own samples alone.
TEST_P(TrainerTest, AnEvaluationThatFailsLeavesNothingToTheNextOne) {
  const auto expect_whole = [&](const LossOptions& loss, const ReplicaOptions& replicas) {
    Model model(runtime(), device(), testing::small_network(), {.seed = 2});
    Optimizer optimizer(model, {});
    TrainingStep step(model, optimizer, loss, replicas);
    MemorySource train({8, 8, 3}, 5, 32, 8);
    FailingSource validation({8, 8, 3}, 5, 32, 8);
    Trainer trainer(step, train, nullptr, {});
    const Metrics before = trainer.evaluate(validation);
    validation.fetched = 0;
    validation.fails_at = 1;
    EXPECT_THROW((void)trainer.evaluate(validation), DataError);
    const Metrics after = trainer.evaluate(validation);
    EXPECT_EQ(after.samples, 32);
    EXPECT_EQ(after.loss, before.loss);
  };
  expect_whole({}, {});
  expect_whole({.views = EvaluationViews{}}, {});
  expect_whole({}, {.replicas = 2});
}

TEST_P(TrainerTest, TheOptionsMayAskForAStopAndTheEvaluationIsTold) {
  struct Evaluations : Callback {
    void on_evaluation(const EvaluationEvent& event) override { told.push_back(event.batch); }
    std::vector<std::int64_t> told;
  } evaluations;
  TrainedModel setup(runtime(), device());
  MemorySource train({8, 8, 3}, 5, 32, 8), validation({8, 8, 3}, 5, 40, 8);
  Trainer trainer(setup.step, train, &validation,
                  {.epochs = 100, .read_seconds = 0, .stop = [&] { return evaluations.told.size() == 6; }});
  trainer.add(evaluations);
  const TrainResult result = trainer.run();
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(evaluations.told, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 1}));
  EXPECT_EQ(result.epoch, 1);
  EXPECT_EQ(result.update, 4);
}

TEST_P(TrainerTest, ARunThatThrowsSaysWhatItHasDone) {
  struct Throws : Callback {
    void on_epoch_end(const EpochEvent& event) override {
      if (event.epoch == 1) throw DataError("the disk is full");
    }
  } throws;
  TrainedModel setup(runtime(), device());
  MemorySource train({8, 8, 3}, 5, 32, 8);
  Trainer trainer(setup.step, train, nullptr, {.epochs = 3});
  trainer.add(throws);
  EXPECT_THROW((void)trainer.run(), DataError);
  EXPECT_EQ(trainer.so_far().updates, 8);
  EXPECT_EQ(trainer.so_far().epoch, 2);
  EXPECT_EQ(trainer.so_far().update, 0);
}

TEST_P(TrainerTest, TheLossScaleDoublesAfterItsInterval) {
  OptimizerOptions options;
  options.initial_loss_scale = 8.0f;
  options.loss_scale_growth_interval = 4;
  TrainedModel setup(runtime(), device(), options, {PrecisionKind::mixed_float16});
  MemorySource train({8, 8, 3}, 5, 96, 8);
  Trainer trainer(setup.step, train, nullptr, {});
  (void)trainer.run();
  EXPECT_EQ(setup.optimizer.control().updates, 12);
  EXPECT_EQ(setup.optimizer.control().loss_scale, 64.0f);
}

TEST_P(TrainerTest, BadOptionsAreRefused) {
  TrainedModel setup(runtime(), device());
  MemorySource train({8, 8, 3}, 5, 16, 8);
  EXPECT_THROW(Trainer(setup.step, train, nullptr, {.accumulate = 0}), ConfigError);
  EXPECT_THROW(Trainer(setup.step, train, nullptr, {.epochs = -1}), ConfigError);
  EXPECT_THROW(Trainer(setup.step, train, nullptr, {.max_skipped_in_a_row = 0}), ConfigError);
  MemorySource other_classes({8, 8, 3}, 6, 16, 8), other_images({8, 9, 3}, 5, 16, 8);
  EXPECT_THROW(Trainer(setup.step, other_classes, nullptr, {}), ShapeError);
  EXPECT_THROW(Trainer(setup.step, train, &other_images, {}), ShapeError);
  EXPECT_THROW(Optimizer(setup.model, {.rule = sgd({.momentum = 1.5f})}), ConfigError);
  EXPECT_THROW(Optimizer(setup.model, {.clip_norm = -1.0f}), ConfigError);
}

}  // namespace
}  // namespace bantam::trainer_test
