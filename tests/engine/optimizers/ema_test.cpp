// Averages of weights: values of timm's rule, skipped updates, evaluation on them and the exact return, state.
#include <cmath>
#include <filesystem>
#include <limits>

#include "bantam/engine/step/training_session.h"
#include "bantam/engine/train/safetensors.h"
#include "bantam/engine/train/trainer.h"
#include "tests/engine/optimizers/dense_weights.h"

namespace bantam::testing::ema_test {
namespace {

class EmaTest : public EngineTest {
 protected:
  std::vector<float> floats(const Tensor& tensor) { return to_host_floats(tensor, runtime().stream(device())); }
};
BANTAM_INSTANTIATE_ON_DEVICES(EmaTest);

OptimizerOptions momentum_with(const EmaOptions& ema) {
  return {.rule = sgd({.learning_rate = 0.1f, .momentum = 0.9f}), .ema = ema};
}

std::vector<float> gradient(int update) {
  std::vector<float> values;
  for (int i = 0; i < 8; ++i) values.push_back(static_cast<float>(std::sin(0.7 * update + i)));
  return values;
}

struct Expected {
  EmaOptions options;
  std::vector<float> average;  // after 20 updates
};

/// tests/oracles/weight_average.py made the values.
std::vector<Expected> by_pytorch() {
  return {
      {{.decay = 0.9},
       {0.114086233f, 0.757583201f, 1.62395728f, 1.91666806f, 1.36659861f, 0.479480207f, 0.0709256008f, 0.516557693f}},
      {{.decay = 0.95, .warmup = true},
       {-0.0475243144f, 0.741481662f, 1.76816833f, 2.08860493f, 1.40818286f, 0.352479696f, -0.10789609f, 0.450322568f}},
      {{.decay = 0.8, .every = 3},
       {0.157694846f, 0.704272687f, 1.52274096f, 1.86060381f, 1.40723133f, 0.579452455f, 0.138323143f, 0.489415526f}}};
}

TEST_P(EmaTest, IsPyTorchs) {
  for (const Expected& expected : by_pytorch()) {
    DenseWeights run(runtime(), device(), 1, momentum_with(expected.options));
    for (int t = 1; t <= 20; ++t) run.update(gradient(t));
    const std::vector<float> average = floats(run.entry("ema/weights/head/weight"));
    for (std::size_t i = 0; i < 8; ++i)
      EXPECT_NEAR(average[i], expected.average[i], 1e-5f * std::abs(expected.average[i])) << i;
  }
}

TEST_P(EmaTest, SkippedUpdatesDoNotMoveIt) {
  DenseWeights run(runtime(), device(), 1, momentum_with({.decay = 0.5}));
  for (int t = 1; t <= 3; ++t) run.update(gradient(t));
  const std::vector<float> before = floats(run.entry("ema/weights/head/weight"));
  run.update(std::vector<float>(8, std::numeric_limits<float>::infinity()));
  EXPECT_EQ(floats(run.entry("ema/weights/head/weight")), before);
  run.update(gradient(4));
  EXPECT_NE(floats(run.entry("ema/weights/head/weight")), before);
}

/// A network with running statistics, after three steps.
struct Trained {
  Trained(Runtime& runtime, Device device, Precision precision = {},
          std::optional<EmaOptions> ema = EmaOptions{.decay = 0.5})
      : session(runtime, device, small_network(),
                {.model = {.precision = precision, .seed = 3},
                 .optimizer = {.rule = adam({.learning_rate = 0.01f}), .ema = ema}}) {
    session.model().register_state(state);
    session.optimizer().register_state(state);
    for (std::int64_t i = 0; i < 3; ++i) session.step().step(batch(8 * i));
  }
  Batch batch(std::int64_t first) {
    return make_batch(session.model().context(Pass::train), small_network().input_shape(), 5, first, 8);
  }
  double evaluated() {
    session.step().evaluate(batch(100));
    return session.step().read_evaluation().loss;
  }
  std::vector<std::vector<float>> everything() {
    const Stream stream = session.model().runtime().stream(session.model().device());
    std::vector<std::vector<float>> all;
    for (const StateEntry& entry : state.tensors())
      if (entry.tensor.dtype() == DType::float32) all.push_back(to_host_floats(entry.tensor, stream));
    const ParameterArena& parameters = session.model().parameters();
    if (parameters.compute().defined())
      for (Parameter& parameter : session.model().parameters().all())
        all.push_back(to_host_floats(parameter.value(), stream));
    return all;
  }
  Tensor entry(const std::string& name) {
    for (const StateEntry& each : state.tensors())
      if (each.name == name) return each.tensor;
    throw Error("no state named " + name);
  }

  TrainingSession session;
  StateRegistry state;
};

TEST_P(EmaTest, AveragedWeightsAreThereForAScopeAndThenEveryBitIsAsBefore) {
  for (const auto kind : {PrecisionKind::float32, PrecisionKind::mixed_float16}) {
    Trained run(runtime(), device(), {kind});
    const auto before = run.everything();
    const double of_weights = run.evaluated();
    const std::vector<float> average = floats(run.entry("ema/weights/stem/weight")),
                             statistics = floats(run.entry("ema/buffers/stem_norm/running_mean"));
    double of_averages = 0;
    {
      const AveragedWeights averages(run.session.optimizer());
      EXPECT_EQ(floats(run.entry("weights/stem/weight")), average);
      EXPECT_EQ(floats(run.entry("buffers/stem_norm/running_mean")), statistics);
      of_averages = run.evaluated();
      EXPECT_THROW(AveragedWeights(run.session.optimizer()), Error);
      EXPECT_THROW(run.session.step().step(run.batch(0)), Error);
    }
    EXPECT_NE(of_averages, of_weights);
    EXPECT_EQ(run.evaluated(), of_weights);
    EXPECT_EQ(run.everything(), before);
  }
}

/// What is evaluated is what a model with the averages as its weights computes.
TEST_P(EmaTest, ATrainerEvaluatesTheAverages) {
  MemorySource source(small_network().input_shape(), 5, 24, 8);
  for (const bool evaluate : {true, false}) {
    Trained run(runtime(), device(), {}, EmaOptions{.decay = 0.5, .evaluate = evaluate});
    const double trained = Trainer(run.session.step(), source, nullptr, {}).evaluate(source).loss;
    Trained plain(runtime(), device(), {}, std::nullopt);
    if (evaluate) {
      for (Parameter& parameter : plain.session.model().parameters().all()) {
        const Tensor average = run.entry("ema/weights/" + parameter.name());
        copy_bytes(parameter.master().data(), average.data(), average.bytes(), runtime().stream(device()));
      }
      for (const Buffer& buffer : plain.session.model().buffers().all()) {
        const Tensor average = run.entry("ema/buffers/" + buffer.name);
        copy_bytes(plain.session.model().buffers().current(buffer).data(), average.data(), average.bytes(),
                   runtime().stream(device()));
      }
    }
    EXPECT_EQ(Trainer(plain.session.step(), source, nullptr, {}).evaluate(source).loss, trained);
  }
}

TEST_P(EmaTest, GoesOnFromSavedState) {
  const std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) / ("bantam_ema_state_" + to_string(device()));
  const OptimizerOptions options = momentum_with({.decay = 0.9, .warmup = true, .every = 2});
  DenseWeights whole(runtime(), device(), 1, options), first(runtime(), device(), 1, options),
      second(runtime(), device(), 1, options);
  for (int t = 1; t <= 9; ++t) whole.update(gradient(t));
  for (int t = 1; t <= 5; ++t) first.update(gradient(t));
  save_state(first.state, first.stream(), path);
  load_state(second.state, second.stream(), path);
  for (int t = 6; t <= 9; ++t) second.update(gradient(t));
  EXPECT_EQ(floats(second.entry("ema/weights/head/weight")), floats(whole.entry("ema/weights/head/weight")));
  std::filesystem::remove(path);
}

TEST_P(EmaTest, RefusesWhatIsOutOfRange) {
  for (const EmaOptions& bad : {EmaOptions{.decay = 1.0}, EmaOptions{.decay = -0.1}, EmaOptions{.every = 0}})
    EXPECT_THROW(DenseWeights(runtime(), device(), 1, momentum_with(bad)), ConfigError);
}

}  // namespace
}  // namespace bantam::testing::ema_test
