// Training over batches that the device makes: the same bits in every mode, with any number of updates a launch,
// wherever it is stopped, and whatever happens to the memory that recordings were made in.
#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <mutex>

#include "bantam/data/augment/built_in.h"
#include "bantam/engine/train/safetensors.h"
#include "bantam/engine/train/trainer.h"
#include "bantam/kernels/update/update.h"
#include "tests/data/support.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::captured_training_test {
namespace {

using testing::ramp_dataset;
using testing::TemporaryFolder;

const Shape kImage = {8, 8, 3};
constexpr std::int64_t kBatch = 4, kAccumulate = 2;
constexpr std::int64_t kUpdates = 41;  // an epoch: 40 of two full batches, one short
constexpr std::int64_t kSamples = kBatch * kAccumulate * 40 + 3;

/// Waits for the device in the middle of a step, as a program's own layer may.
class Waiter : public Layer {
 public:
  std::string_view kind() const override { return "waiter"; }
  bool supports_meta() const override { return true; }
  Shape output_shape(std::span<const Shape> inputs) const override { return inputs[0]; }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    struct Bound : BoundLayer {
      Tensor forward(const Context& context, std::span<Tensor> inputs) override {
        if (!context.device.meta) synchronize(context.stream);
        return inputs[0];
      }
    };
    return std::make_unique<Bound>();
  }
};

/// Counts its calls on the host, and does not say that it may run elsewhere than on the device itself.
class HostCounter : public Layer {
 public:
  explicit HostCounter(std::shared_ptr<std::int64_t> calls) : calls_(std::move(calls)) {}
  std::string_view kind() const override { return "host_counter"; }
  Shape output_shape(std::span<const Shape> inputs) const override { return inputs[0]; }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    struct Bound : BoundLayer {
      std::shared_ptr<std::int64_t> calls;
      Tensor forward(const Context& context, std::span<Tensor> inputs) override {
        EXPECT_FALSE(context.device.meta);
        ++*calls;
        return inputs[0];
      }
    };
    auto bound = std::make_unique<Bound>();
    bound->calls = calls_;
    return bound;
  }

 private:
  std::shared_ptr<std::int64_t> calls_;
};

/// Every kind of state: running statistics, dropout, weights and biases.
Graph network(bool waits = false, const std::shared_ptr<std::int64_t>& counted = nullptr) {
  Graph graph(kImage);
  graph.add("conv", conv2d({.filters = 8, .kernel = {3, 3}, .padding = Padding::same(), .bias = false}));
  if (waits) graph.add("waiter", std::make_shared<Waiter>());
  if (counted) graph.add("counter", std::make_shared<HostCounter>(counted));
  graph.add("norm", batch_norm({.activation = {Activation::relu}}));
  graph.add("separable", separable_conv2d({.filters = 12, .activation = {Activation::relu}}));
  graph.add("pool", max_pool());
  graph.add(flatten());
  graph.add("drop", dropout({.rate = 0.4f}));
  graph.add("head", dense({.units = 3}));
  return graph;
}

struct Case {
  StepMode mode = StepMode::captured;
  int updates_a_launch = 0;
  Precision precision;
  float loss_scale = 1024.0f;
  bool waits = false;
  RecomputeOptions recompute;
  std::shared_ptr<std::int64_t> counted;  // calls of a HostCounter's forward
  bool averages = false;                  // weights are averaged, and pruned
  bool measured = false;                  // by several metrics, and evaluated after every seventh update
};

/// Everything that a run produces.
struct Outcome {
  std::vector<float> master, moment2, statistics, averages;
  std::vector<double> losses;  // of each update, in order
  std::vector<float> values;   // of each update: learning rate, loss scale, norm of its gradient (-1: skipped)
  double evaluation = 0;
  std::vector<std::vector<double>> sums;  // of metrics, of each update and evaluation, in order
  kernels::UpdateControl control;
  MemoryStats memory;
  bool operator==(const Outcome& o) const {
    return master == o.master && moment2 == o.moment2 && statistics == o.statistics && averages == o.averages &&
           losses == o.losses && values == o.values && evaluation == o.evaluation && sums == o.sums &&
           control.updates == o.control.updates && control.skipped == o.control.skipped &&
           control.loss_scale == o.control.loss_scale;
  }
};

class CapturedTrainingTest : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (GetParam().is_cuda() && cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device: skipped";
  }
  bool captures() const { return GetParam().is_cuda(); }
};
INSTANTIATE_TEST_SUITE_P(Devices, CapturedTrainingTest, ::testing::Values(Device::cpu(), Device::cuda(0)),
                         [](const auto& info) { return info.param.is_cpu() ? "cpu" : "cuda"; });

/// A runtime with all that trains on it, and a callback that notes losses and does as it is told.
struct Training : Callback {
  Training(Device the_device, const Case& given)
      : device(the_device),
        runtime({.threads = 2,
                 .log =
                     [this](std::string_view message) {
                       const std::lock_guard lock(guard);
                       log += std::string(message) + "\n";
                     }}),
        model(runtime, device, network(given.waits, given.counted),
              {.precision = given.precision, .seed = 7, .recompute = given.recompute}),
        optimizer(model, options_of(given)),
        step(model, optimizer,
             given.measured ? LossOptions{.metrics = {accuracy(), f1(), confusion_matrix(), top_k(2)}} : LossOptions{}),
        mode(given.mode),
        updates_a_launch(given.updates_a_launch),
        evaluate_every(given.measured ? Duration::updates(7) : Duration::epochs(1)) {
    model.register_state(state);
    optimizer.register_state(state);
  }

  static OptimizerOptions options_of(const Case& given) {
    OptimizerOptions options{.initial_loss_scale = given.loss_scale, .loss_scale_growth_interval = 20};
    if (given.averages) {
      options.ema = EmaOptions{.decay = 0.8, .warmup = true, .every = 3};
      options.prune = PruneOptions{.initial = 0.2, .begin = 4, .end = 50, .frequency = 9};
    }
    return options;
  }

  std::unique_ptr<ImageBatchSource> source(bool trains) {
    PipelineOptions pipeline{.cache = CacheKind::device,
                             .normalize = {.scale = 1.0 / 255, .mean = {0.5}, .std = {0.25}},
                             .augmentations = {random_crop({.padding = 2}), random_flip()},
                             .batch_size = kBatch};
    pipeline.shuffle.emplace();
    if (!trains) pipeline = evaluation_pipeline(pipeline);
    return std::make_unique<ImageBatchSource>(
        runtime, ramp_dataset(runtime, trains ? kSamples : 9, kImage),
        LoaderOptions{.pipeline = pipeline, .device = device, .seed = 5, .staged_on_cpu = true});
  }

  TrainResult train(std::int64_t epochs, std::int64_t epoch = 0, std::int64_t update = 0) {
    const auto data = source(true), validation = source(false);
    Trainer trainer(
        step, *data, validation.get(),
        {.epochs = epochs,
         .accumulate = kAccumulate,
         .read_every = read_every,
         .read_seconds = 1e9,
         .evaluate_every = evaluate_every,
         .mode = mode,
         .updates_a_launch = updates_a_launch,
         .schedules = UpdateSchedules{.learning_rate =
                                          [this](std::int64_t n) {
                                            return n == explodes_at ? 1e30f : 2e-3f + 1e-3f * std::cos(0.3f * float(n));
                                          }},
         .first = {.epoch = epoch, .update = update},
         .look_every = look_every,
         .look = [this](std::int64_t update) { look(update); }});
    trainer.add(*this);
    current = &trainer;
    const TrainResult result = trainer.run();
    outcome.evaluation = result.validation.loss;
    return result;
  }

  void on_progress(const ProgressEvent& event) override {
    for (const Metrics& metrics : event.metrics) {
      outcome.losses.push_back(metrics.loss);
      if (measured()) outcome.sums.push_back(numbers_of(metrics));
    }
    for (const UpdateReport& v : event.values)
      outcome.values.insert(outcome.values.end(), {v.learning_rate, v.loss_scale, v.skipped ? -1 : v.gradient_norm});
    if (progress) progress(event);
  }

  std::vector<float> state_values(const Tensor& tensor) {
    const Stream stream = runtime.stream(device);
    if (tensor.dtype() != DType::uint8) return to_host<float>(tensor, stream);
    const std::vector<std::uint8_t> bytes = to_host<std::uint8_t>(tensor, stream);
    return {bytes.begin(), bytes.end()};
  }
  void look(std::int64_t update) {
    looked.push_back(update);
    const Stream stream = runtime.stream(device);
    gradients.push_back(to_host<float>(model.parameters().gradient(), stream));
    weights.push_back(to_host<float>(model.parameters().master(), stream));
  }
  void on_evaluated(const EvaluatedEvent& event) override {
    if (measured()) outcome.sums.push_back(numbers_of(event.validation));
  }
  bool measured() const { return !step.loss().metrics.empty(); }

  Outcome finish() {
    const Stream stream = runtime.stream(device);
    outcome.master = to_host<float>(model.parameters().master(), stream);
    const auto add = [&](std::vector<float>& to, std::string_view prefix) {
      for (const auto& entry : state.tensors())
        if (entry.name.starts_with(prefix)) std::ranges::copy(state_values(entry.tensor), std::back_inserter(to));
    };
    add(outcome.moment2, "optimizer/moment2/");
    add(outcome.averages, "ema/");
    add(outcome.averages, "prune/");
    EXPECT_EQ(static_cast<std::int64_t>(outcome.moment2.size()), model.parameters().parameter_count());
    outcome.statistics = to_host<float>(model.buffers().current(), stream);
    outcome.control = optimizer.control();
    outcome.memory = runtime.allocator(device).stats();
    EXPECT_EQ(runtime.allocator(device).check_invariants(), "");
    return outcome;
  }

  Device device;
  std::mutex guard;
  std::string log;
  Runtime runtime;
  Model model;
  Optimizer optimizer;
  TrainingStep step;
  StateRegistry state;
  StepMode mode;
  int updates_a_launch;
  Duration evaluate_every;
  std::int64_t read_every = TrainingStep::kMetricRing;
  std::int64_t explodes_at = -1;  // the update whose learning rate is far too large
  std::function<void(const ProgressEvent&)> progress;
  std::int64_t look_every = 0;
  std::vector<std::int64_t> looked;
  std::vector<std::vector<float>> gradients, weights;  // at those updates
  Trainer* current = nullptr;
  Outcome outcome;
};

Outcome whole_run(Device device, const Case& given) {
  Training run(device, given);
  run.train(2);
  EXPECT_EQ(run.log, "");
  return run.finish();
}

TEST_P(CapturedTrainingTest, every_mode_and_launch_gives_the_same_bits) {
  for (const auto kind : {PrecisionKind::float32, PrecisionKind::mixed_float16}) {
    // A loss scale that float16 cannot bear: updates are skipped until it has come down, and the scale grows again.
    const Case eager{.mode = StepMode::eager, .precision = {kind}, .loss_scale = 16777216.0f};
    const Outcome expected = whole_run(GetParam(), eager);
    ASSERT_EQ(expected.losses.size(), static_cast<std::size_t>(2 * kUpdates));
    ASSERT_EQ(expected.values.size(), 3 * expected.losses.size());
    for (std::size_t n = 0; n < expected.losses.size(); ++n)
      ASSERT_EQ(expected.values[3 * n], 2e-3f + 1e-3f * std::cos(0.3f * float(n))) << "the rate of update " << n;
    if (kind == PrecisionKind::mixed_float16) {
      EXPECT_GT(expected.control.skipped, 0);
      EXPECT_GT(expected.control.updates, 40);
    }
    Case planned = eager;
    planned.mode = StepMode::planned;
    const Outcome by_plan = whole_run(GetParam(), planned);
    EXPECT_TRUE(by_plan == expected);
    for (const int updates : {1, 7, 32}) {
      Case captured = eager;
      captured.mode = StepMode::captured;
      captured.updates_a_launch = updates;
      const Outcome outcome = whole_run(GetParam(), captured);
      EXPECT_TRUE(outcome == expected) << updates << " a launch";
      EXPECT_EQ(outcome.memory.peak_bytes, expected.memory.peak_bytes);
      if (captures() && updates < 32) {
        EXPECT_LT(3 * outcome.memory.planned_allocations, by_plan.memory.planned_allocations)
            << "most updates ran without the host";
      }
    }
  }
}

TEST_P(CapturedTrainingTest, metrics_and_evaluations_between_launches_have_the_same_bits) {
  Case given{.mode = StepMode::eager, .precision = {PrecisionKind::mixed_float16}, .measured = true};
  const Outcome expected = whole_run(GetParam(), given);
  // 82 updates; evaluations after every seventh of them, and at the last epoch's end.
  ASSERT_EQ(expected.sums.size(), static_cast<std::size_t>(2 * kUpdates + 2 * kUpdates / 7 + 1));
  EXPECT_EQ(expected.sums[0].size(), 3u + 9 + 2) << "of an update: loss, f1, top_k";
  EXPECT_EQ(expected.sums.back().size(), 3u + 9 + 9 + 2) << "of an evaluation: the confusion matrix, too";
  given.mode = StepMode::planned;
  EXPECT_TRUE(whole_run(GetParam(), given) == expected);
  for (const int updates : {3, 32}) {
    given.mode = StepMode::captured;
    given.updates_a_launch = updates;
    EXPECT_TRUE(whole_run(GetParam(), given) == expected) << updates << " a launch";
  }
  Case plain{.mode = StepMode::planned, .precision = {PrecisionKind::mixed_float16}};
  EXPECT_EQ(whole_run(GetParam(), plain).master, expected.master) << "what is measured changes no weight";
}

TEST_P(CapturedTrainingTest, whoever_looks_sees_each_update_that_is_due_and_changes_nothing) {
  for (const auto kind : {PrecisionKind::float32, PrecisionKind::mixed_float16}) {
    Case given{.mode = StepMode::eager, .precision = {kind}};
    const Outcome expected = whole_run(GetParam(), given);
    const auto watch = [&](StepMode mode) {
      given.mode = mode;
      auto run = std::make_unique<Training>(GetParam(), given);
      run->look_every = 9;
      run->train(2);
      EXPECT_TRUE(run->finish() == expected) << to_string(mode);
      EXPECT_EQ(run->looked, (std::vector<std::int64_t>{9, 18, 27, 36, 45, 54, 63, 72, 81})) << to_string(mode);
      return run;
    };
    const auto eager = watch(StepMode::eager);
    for (const StepMode mode : {StepMode::planned, StepMode::captured}) {
      const auto run = watch(mode);
      EXPECT_EQ(run->gradients, eager->gradients) << to_string(mode);
      EXPECT_EQ(run->weights, eager->weights) << to_string(mode);
    }
    // The norm of what was seen is that of the event: without the loss scale, and in another order of the sum.
    double squares = 0;
    for (const float value : eager->gradients[1]) squares += double{value} * value;
    const float *of_update = &expected.values[3 * 17], scale = of_update[1], norm = of_update[2];
    EXPECT_NEAR(std::sqrt(squares) / scale / norm, 1.0, 1e-5);
  }
}

// The host learns of it late; updates that the device was given in between must not count.
TEST_P(CapturedTrainingTest, a_run_that_is_not_finite_ends_at_the_same_update_in_every_mode) {
  const auto run = [&](StepMode mode, int updates, std::string& message) {
    Training training(GetParam(), {.mode = mode, .updates_a_launch = updates});
    training.explodes_at = 50;
    try {
      training.train(2);
    } catch (const NotFiniteError& error) {
      message = error.what();
    }
    return training.finish();
  };
  std::string expected_message;
  const Outcome expected = run(StepMode::eager, 0, expected_message);
  EXPECT_NE(expected_message.find("the gradients of update 11 of epoch 2 are not finite: first not finite is the "),
            std::string::npos)
      << expected_message;
  EXPECT_NE(expected_message.find(" of the data set"), std::string::npos) << expected_message;
  EXPECT_EQ(expected.losses.size(), 52u) << "with the update that was skipped";
  EXPECT_EQ(expected.control.updates, 51);
  EXPECT_EQ(expected.control.skipped, 1);
  for (const int updates : {-1, 1, 7, 32}) {
    std::string message;
    const Outcome outcome = run(updates < 0 ? StepMode::planned : StepMode::captured, std::max(updates, 0), message);
    EXPECT_EQ(message, expected_message) << updates;
    EXPECT_EQ(outcome.master, expected.master) << updates;
    EXPECT_EQ(outcome.moment2, expected.moment2) << updates;
    EXPECT_EQ(outcome.statistics, expected.statistics) << updates;
    EXPECT_EQ(outcome.losses.size(), expected.losses.size()) << updates;
    EXPECT_EQ(outcome.control.updates, 51) << updates;
    EXPECT_EQ(outcome.control.skipped, 1) << updates;
  }
}

TEST_P(CapturedTrainingTest, recompute_is_captured_too) {
  Case given{.mode = StepMode::eager, .precision = {PrecisionKind::mixed_bfloat16}};
  const Outcome expected = whole_run(GetParam(), given);
  given.mode = StepMode::captured;
  given.updates_a_launch = 5;
  given.recompute = {.kind = RecomputeOptions::Kind::all};
  EXPECT_TRUE(whole_run(GetParam(), given) == expected);
}

// Averages move, masks change and hold without the host, and evaluations read the averages.
TEST_P(CapturedTrainingTest, averages_and_masks_are_captured_too) {
  for (const auto kind : {PrecisionKind::float32, PrecisionKind::mixed_float16}) {
    Case given{.mode = StepMode::eager, .precision = {kind}, .loss_scale = 16777216.0f, .averages = true};
    const Outcome expected = whole_run(GetParam(), given);
    EXPECT_GT(std::ranges::count(expected.master, 0.0f), 600);
    given.mode = StepMode::planned;
    EXPECT_TRUE(whole_run(GetParam(), given) == expected);
    for (const int updates : {1, 5, 32}) {
      given.mode = StepMode::captured;
      given.updates_a_launch = updates;
      const Outcome outcome = whole_run(GetParam(), given);
      EXPECT_TRUE(outcome == expected) << updates << " a launch";
      EXPECT_EQ(outcome.memory.peak_bytes, expected.memory.peak_bytes);
    }
  }
}

TEST_P(CapturedTrainingTest, a_stop_between_launches_goes_on_to_the_same_bits) {
  const Case given{.updates_a_launch = 7, .precision = {PrecisionKind::mixed_float16}, .averages = true};
  Outcome expected = whole_run(GetParam(), given);
  const TemporaryFolder folder;
  Training stopped(GetParam(), given);
  stopped.read_every = 16;
  stopped.progress = [&](const ProgressEvent& event) {
    if (event.epoch == 0 && event.update >= 12) stopped.current->request_stop();
  };
  const TrainResult result = stopped.train(2);
  ASSERT_TRUE(result.stopped);
  ASSERT_GT(result.update, 0);
  ASSERT_LT(result.update, kUpdates);
  save_state(stopped.state, stopped.runtime.stream(GetParam()), folder.path() / "state");
  Case other = given;
  other.updates_a_launch = 3;
  Training resumed(GetParam(), other);
  load_state(resumed.state, resumed.runtime.stream(GetParam()), folder.path() / "state");
  resumed.outcome.losses = stopped.outcome.losses;
  resumed.outcome.values = stopped.outcome.values;
  resumed.train(2, result.epoch, result.update);
  EXPECT_TRUE(resumed.finish() == expected);
}

// Between launches an arena may be released, and its addresses may go to others: recordings made in it are of no use
// then.
TEST_P(CapturedTrainingTest, memory_may_be_released_and_reused_between_launches) {
  const Case given{.updates_a_launch = 4};
  const Outcome expected = whole_run(GetParam(), given);
  Training run(GetParam(), given);
  run.read_every = 8;
  std::vector<Tensor> squatters;
  int calls = 0;
  run.progress = [&](const ProgressEvent&) {
    BfcAllocator& memory = run.runtime.allocator(GetParam());
    const Context context = Context::make(run.runtime, GetParam());
    if (++calls % 2 == 0) memory.trim();
    if (calls == 5) {
      const auto bytes = static_cast<std::int64_t>(memory.stats().arena_bytes);
      ASSERT_TRUE(memory.release_arena());
      squatters.push_back(context.allocate({bytes}, DType::uint8));
      zero_bytes(squatters.back().data(), static_cast<std::size_t>(bytes), context.stream);
    }
    if (calls == 8) squatters.clear();
  };
  run.train(2);
  EXPECT_GT(calls, 8);
  const Outcome outcome = run.finish();
  EXPECT_EQ(run.log, "");
  EXPECT_EQ(outcome.master, expected.master);
  EXPECT_EQ(outcome.losses, expected.losses);
  EXPECT_EQ(outcome.evaluation, expected.evaluation);
}

// A recording would leave its counting out, and a rehearsal would count too much.
TEST_P(CapturedTrainingTest, a_layer_that_is_silent_on_meta_devices_runs_planned_once_an_update) {
  Case given{.mode = StepMode::eager, .precision = {PrecisionKind::mixed_float16}};
  given.counted = std::make_shared<std::int64_t>(0);
  const Outcome expected = whole_run(GetParam(), given);
  const std::int64_t eager_calls = std::exchange(*given.counted, 0);
  given.mode = StepMode::captured;
  Training run(GetParam(), given);
  run.train(2);
  EXPECT_TRUE(run.finish() == expected);
  EXPECT_EQ(*given.counted, eager_calls);
  EXPECT_GT(run.outcome.memory.planned_allocations, run.outcome.memory.allocations / 2);
  EXPECT_EQ(run.outcome.memory.departures, 0u);
  EXPECT_NE(run.log.find("layer 'counter' (host_counter) does not support meta devices"), std::string::npos) << run.log;
  EXPECT_EQ(run.log.find("steps run planned, not captured: ") != std::string::npos, captures()) << run.log;
}

TEST_P(CapturedTrainingTest, a_layer_that_waits_for_the_device_runs_planned) {
  Case given{.mode = StepMode::eager, .waits = true};
  const Outcome expected = whole_run(GetParam(), given);
  given.mode = StepMode::captured;
  Training run(GetParam(), given);
  run.train(2);
  EXPECT_TRUE(run.finish() == expected);
  EXPECT_EQ(run.log.find("steps run planned, not captured: ") != std::string::npos, captures()) << run.log;
}

}  // namespace
}  // namespace bantam::captured_training_test
