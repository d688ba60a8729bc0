// Every optimizer against PyTorch and the papers over 20 updates (tests/oracles/optimizers.py); and what all of them
// have in common: the same bits in all modes and after a resume, and skipped updates that change nothing.
#include "tests/engine/optimizers/optimizer_oracles.h"

#include <cmath>
#include <limits>
#include <map>

#include "bantam/base/error.h"
#include "bantam/engine/optimizers/muon.h"
#include "bantam/engine/train/trainer.h"
#include "tests/base/config_error.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::optimizer_oracles_test {
namespace {

using testing::EngineTest;
using testing::MemorySource;

class OptimizerOraclesTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(OptimizerOraclesTest);

OptimizerOptions read(const std::string& optimizer) {
  ConfigMap section = ConfigDocument::parse("optimizer: " + optimizer, "oracles.yaml").map();
  return read_optimizer(section);
}

/// The cases of the program that made the values.
std::map<std::string, OptimizerOptions> oracle_cases() {
  std::map<std::string, OptimizerOptions> cases;
  for (const auto& [name, oracle] : testing::optimizer_oracles()) {
    OptimizerOptions& options = cases[name] = read(oracle.optimizer);
    options.clip_norm = oracle.clip_norm;
    options.clip_value = oracle.clip_value;
  }
  return cases;
}

/// In [-0.5, 0.5): the upper 24 bits of a mixed 32-bit number.
float hashed(std::uint32_t index) {
  std::uint32_t u = index * 2654435761u;
  u = (u ^ (u >> 15)) * 2246822519u;
  u ^= u >> 13;
  return static_cast<float>(u >> 8) / 16777216.0f - 0.5f;
}

constexpr const char* kTensors[] = {"conv/weight", "norm/scale", "head/weight", "head/bias"};
constexpr std::uint32_t kUpdates = 20;

/// A model whose weights and gradients are the program's.
struct Trained {
  Trained(Runtime& runtime, Device device, const OptimizerOptions& options, std::vector<ParameterGroup> groups = {})
      : model(runtime, device, graph(), {.groups = std::move(groups)}), optimizer(model, options) {
    for (std::uint32_t k = 0; k < std::size(kTensors); ++k) fill(parameter(k).master(), 1000 * k);
  }
  static Graph graph() {
    Graph graph({4, 4, 2});
    graph.add("conv", conv2d({.filters = 4, .kernel = {3, 3}, .bias = false}));
    graph.add("norm", batch_norm({.shift = false}));
    graph.add(flatten());
    graph.add("head", dense({.units = 5}));
    return graph;
  }
  Parameter& parameter(std::uint32_t k) { return *model.parameters().find(kTensors[k]); }
  Stream stream() { return model.runtime().stream(model.device()); }
  void fill(const Tensor& tensor, std::uint32_t first) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      values.push_back(hashed(first + static_cast<std::uint32_t>(i)));
    copy_bytes(tensor.data(), values.data(), tensor.bytes(), stream());
    synchronize(stream());
  }
  void update(std::uint32_t number) {
    for (std::uint32_t k = 0; k < std::size(kTensors); ++k) fill(parameter(k).gradient(), 100000 * number + 1000 * k);
    optimizer.update();
  }

  Model model;
  Optimizer optimizer;
};

// Each tensor's difference, against its norm; values near 0 have no digits of their own after 20 sums.
TEST_P(OptimizerOraclesTest, TwentyUpdatesArePyTorchsAndThePapers) {
  for (const auto& [name, options] : oracle_cases()) {
    const std::vector<double>& weights = testing::optimizer_oracles().at(name).weights;
    Trained run(runtime(), device(), options);
    for (std::uint32_t t = 1; t <= kUpdates; ++t) run.update(t);
    auto expected = weights.begin();
    for (std::uint32_t k = 0; k < std::size(kTensors); ++k) {
      double difference = 0, norm = 0;
      for (const float value : to_host<float>(run.parameter(k).master(), run.stream())) {
        difference += std::pow(value - *expected, 2);
        norm += std::pow(*expected++, 2);
      }
      EXPECT_LE(std::sqrt(difference), 1e-5 * std::sqrt(norm)) << name << ": " << kTensors[k];
    }
    EXPECT_EQ(expected, weights.end()) << name;
  }
}

TEST_P(OptimizerOraclesTest, ASkippedUpdateChangesNothingOfWhatFollows) {
  for (const auto& [name, options] : oracle_cases()) {
    Trained run(runtime(), device(), options), disturbed(runtime(), device(), options);
    for (std::uint32_t t = 1; t <= 4; ++t) {
      run.update(t);
      if (t != 1 && t != 3) {
        disturbed.update(t);
        continue;
      }
      const float bad = std::numeric_limits<float>::infinity();
      copy_bytes(disturbed.parameter(3).gradient().data(), &bad, sizeof(bad), disturbed.stream());
      disturbed.optimizer.update();
      disturbed.update(t);
    }
    EXPECT_EQ(disturbed.optimizer.control().skipped, 2) << name;
    EXPECT_EQ(to_host<float>(run.model.parameters().master(), run.stream()),
              to_host<float>(disturbed.model.parameters().master(), run.stream()))
        << name;
  }
}

struct Outcome {
  std::vector<float> weights;
  MemoryStats memory;
};

/// Two epochs of batches of 8 and a last one of 5, two an update.
Outcome train(Device device, StepMode mode, const OptimizerOptions& options, PrecisionKind precision) {
  Runtime runtime({.threads = 2});
  Model model(runtime, device, testing::small_network(), {.precision = {.kind = precision}, .seed = 5});
  Optimizer optimizer(model, options);
  TrainingStep step(model, optimizer, {});
  MemorySource data({8, 8, 3}, 5, 45, 8);
  Trainer trainer(step, data, nullptr, {.epochs = 2, .accumulate = 2, .mode = mode});
  (void)trainer.run();
  return {to_host<float>(model.parameters().master(), runtime.stream(device)), runtime.allocator(device).stats()};
}

void expect_same_bits_in_all_modes(Device device, const char* name, PrecisionKind precision) {
  const OptimizerOptions options = oracle_cases().at(name);
  const Outcome eager = train(device, StepMode::eager, options, precision);
  for (const StepMode mode : {StepMode::planned, StepMode::captured}) {
    const Outcome run = train(device, mode, options, precision);
    EXPECT_EQ(run.weights, eager.weights) << name;
    EXPECT_EQ(run.memory.departures, 0u) << name;
    EXPECT_GT(run.memory.planned_allocations, 50u) << name;
  }
}

TEST_P(OptimizerOraclesTest, TrainsToTheSameBitsInAllModes) {
  for (const char* name :
       {"sgd_dampened", "rmsprop_centered_momentum", "lion", "lamb", "muon", "muon_lamb", "clip_both"})
    expect_same_bits_in_all_modes(device(), name, PrecisionKind::float32);
}

// Muon's products are then of the half type.
TEST_P(OptimizerOraclesTest, MuonTrainsToTheSameBitsInAllModesInMixedPrecision) {
  for (const PrecisionKind precision : {PrecisionKind::mixed_float16, PrecisionKind::mixed_bfloat16})
    expect_same_bits_in_all_modes(device(), "muon", precision);
}

/// A small network in training, with its state.
struct InTraining {
  InTraining(Runtime& runtime, Device device, const OptimizerOptions& options)
      : model(runtime, device, testing::small_network(), {.seed = 5}),
        optimizer(model, options),
        step(model, optimizer, {}) {
    model.register_state(state);
    optimizer.register_state(state);
  }
  void update(std::int64_t number) {
    step.step(testing::make_batch(model.context(Pass::train), {8, 8, 3}, 5, number * 8, 8));
  }
  void load(const InTraining& other) {
    ASSERT_EQ(state.tensors().size(), other.state.tensors().size());
    const Stream stream = model.runtime().stream(model.device());
    for (std::size_t i = 0; i < state.tensors().size(); ++i) {
      const Tensor &to = state.tensors()[i].tensor, &from = other.state.tensors()[i].tensor;
      std::vector<std::byte> bytes(from.bytes());
      copy_bytes(bytes.data(), from.data(), bytes.size(), stream);
      synchronize(stream);
      copy_bytes(to.data(), bytes.data(), bytes.size(), stream);
      synchronize(stream);
    }
    state.loaded();
  }

  Model model;
  Optimizer optimizer;
  TrainingStep step;
  StateRegistry state;
};

TEST_P(OptimizerOraclesTest, WhatIsSavedContinuesToTheSameBits) {
  for (const auto& [name, options] : oracle_cases()) {
    InTraining whole(runtime(), device(), options), first(runtime(), device(), options),
        second(runtime(), device(), options);
    for (std::int64_t t = 0; t < 6; ++t) whole.update(t);
    for (std::int64_t t = 0; t < 3; ++t) first.update(t);
    second.load(first);
    for (std::int64_t t = 3; t < 6; ++t) second.update(t);
    const Stream stream = runtime().stream(device());
    EXPECT_EQ(to_host<float>(whole.model.parameters().master(), stream),
              to_host<float>(second.model.parameters().master(), stream))
        << name;
  }
}

TEST_P(OptimizerOraclesTest, MuonSavesAMomentumOfMatricesAndTheRestsMoments) {
  InTraining run(runtime(), device(), oracle_cases().at("muon"));
  EXPECT_EQ(run.optimizer.options().rule->slots(), 2);
  EXPECT_TRUE(run.state.contains("optimizer/moment1/head/weight"));
  EXPECT_FALSE(run.state.contains("optimizer/moment2/head/weight")) << "the memory of its work is not saved";
  EXPECT_FALSE(run.state.contains("optimizer/moment2/separable/pointwise_weight"));
  for (const char* name : {"head/bias", "stem_norm/scale", "separable/depthwise_weight"})
    for (const char* slot : {"optimizer/moment1/", "optimizer/moment2/"})
      EXPECT_TRUE(run.state.contains(std::string(slot) + name)) << name;
}

// With a group's rate, too. Muon's rate is a power of two: the group's divided by it is then exact.
TEST_P(OptimizerOraclesTest, WhatMuonLeavesOutMovesAsTheRestAlone) {
  const RulePtr rest = sgd({.learning_rate = 0.05f, .weight_decay = 0.02f, .momentum = 0.9f, .nesterov = true});
  MuonOptions options{.learning_rate = 0x1p-6f, .weight_decay = 0.5f, .rest = rest};
  const RulePtr all = muon(options);
  options.exclude = {"head/*"};
  const RulePtr excluding = muon(options);
  for (const float scale : {1.0f, 3.0f}) {
    const std::vector<ParameterGroup> groups = {{.match = "head/weight", .learning_rate_scale = scale}};
    Trained plain(runtime(), device(), {.rule = rest}, groups), whole(runtime(), device(), {.rule = all}, groups),
        run(runtime(), device(), {.rule = excluding}, groups);
    for (std::uint32_t t = 1; t <= 5; ++t)
      for (Trained* each : {&plain, &whole, &run}) each->update(t);
    const auto values = [&](Trained& of, std::uint32_t k) {
      return to_host<float>(of.parameter(k).master(), of.stream());
    };
    EXPECT_EQ(values(run, 2), values(plain, 2)) << "the head";
    EXPECT_NE(values(run, 2), values(whole, 2));
    EXPECT_EQ(values(run, 0), values(whole, 0)) << "the convolution";
    EXPECT_NE(values(run, 0), values(plain, 0));
  }
}

TEST_P(OptimizerOraclesTest, ANameThatMuonCannotLeaveOutIsAnError) {
  const auto message = [&](const char* pattern) {
    const OptimizerOptions options{.rule = muon({.exclude = {"conv/weight", pattern}, .rest = sgd()})};
    return testing::config_error_of([&] { Trained run(runtime(), device(), options); });
  };
  EXPECT_EQ(message("haed/*"),
            "muon.exclude: 'haed/*' matches no parameter of 2 or 4 dimensions; did you mean 'head/'?");
  EXPECT_EQ(message("norm/scale"),
            "muon.exclude: 'norm/scale' matches no parameter of 2 or 4 dimensions; there are 2 such parameters, from "
            "'conv/weight' to 'head/weight'");
}

// Class tokens and position embeddings have 2 dimensions, but are tables of vectors.
TEST_P(OptimizerOraclesTest, TablesOfVectorsAreNoMatricesOfMuon) {
  Graph graph({4, 6});
  graph.add("token", class_token());
  graph.add("positions", position_embedding());
  graph.add("mix", dense({.units = 3}));
  graph.add(flatten());
  graph.add("head", dense({.units = 5}));
  Model model(runtime(), device(), graph, {});
  for (const Parameter& parameter : model.parameters().all())
    EXPECT_EQ(Muon::moves(parameter, {.rest = sgd()}), parameter.name().ends_with("/weight")) << parameter.name();
}

// The matrices move by rate times an orthogonal matrix, so twice as far at twice the rate; so do the others.
TEST_P(OptimizerOraclesTest, AScheduledRateOfMuonScalesTheRests) {
  const OptimizerOptions options{.rule = muon({.rest = adam({.learning_rate = 0.01f})})};
  std::vector<std::vector<float>> moved;
  for (const float rate : {0.02f, 0.04f}) {
    Trained run(runtime(), device(), options);
    run.optimizer.set_learning_rate(rate);
    const std::vector<float> before = to_host<float>(run.model.parameters().master(), run.stream());
    run.update(1);
    moved.push_back(to_host<float>(run.model.parameters().master(), run.stream()));
    for (std::size_t i = 0; i < before.size(); ++i) moved.back()[i] -= before[i];
  }
  for (std::size_t i = 0; i < moved[0].size(); ++i) EXPECT_NEAR(moved[1][i], 2 * moved[0][i], 1e-6);
}

TEST_P(OptimizerOraclesTest, OptionsThatDoNotGoTogetherAreRefused) {
  EXPECT_THROW((void)sgd({.momentum = 0.9f, .dampening = 0.5f, .nesterov = true}), ConfigError);
  EXPECT_THROW((void)sgd({.momentum = 0.9f, .dampening = 1.5f}), ConfigError);
  EXPECT_THROW((void)rmsprop({.alpha = 1.0f}), ConfigError);
  EXPECT_THROW((void)muon({.rest = muon()}), ConfigError);
  EXPECT_THROW((void)muon({.steps = 0}), ConfigError);
  EXPECT_THROW(Trained(runtime(), device(), {.clip_value = -1.0f}), ConfigError);
  EXPECT_THROW(Trained(runtime(), device(), {.rule = nullptr}), ConfigError);
}

}  // namespace
}  // namespace bantam::optimizer_oracles_test
