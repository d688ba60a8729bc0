// Single updates with numbers worked out by hand: each rule's first moves, clipping, the loss scale, and updates that
// are skipped.
#include <limits>

#include "tests/engine/engine_fixture.h"

namespace bantam::optimizer_steps_test {
namespace {

using testing::EngineTest;

class OptimizerStepsTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(OptimizerStepsTest);

/// A dense layer of one unit without bias: eight weights, all 1 at first.
struct EightWeights {
  EightWeights(Runtime& runtime, Device device, const OptimizerOptions& options, Precision precision = {})
      : model(runtime, device, graph(), {.precision = precision}), optimizer(model, options) {}
  static Graph graph() {
    Graph graph({8});
    graph.add("head", dense({.units = 1, .bias = false, .initializer = "ones"}));
    return graph;
  }

  void update(const std::vector<float>& gradient) {
    copy_bytes(weight().gradient().data(), gradient.data(), 8 * sizeof(float), stream());
    synchronize(stream());
    optimizer.update();
  }
  /// With eight equal gradients.
  void update(float gradient) { update(std::vector<float>(8, gradient)); }
  std::vector<float> values() { return to_host<float>(weight().master(), stream()); }
  Parameter& weight() { return *model.parameters().find("head/weight"); }
  Stream stream() { return model.runtime().stream(model.device()); }

  Model model;
  Optimizer optimizer;
};

/// Float32 of values near 1, rounded a few times an update.
constexpr float kNear = 1e-6f;

struct ByHand {
  const char* name;
  OptimizerOptions options;
  std::vector<float> gradients;  // of update 1, 2, …
  std::vector<float> weights;    // after them
};

std::vector<ByHand> worked_out() {
  return {
      {"w - 0.1 g", {.rule = sgd({.learning_rate = 0.1f})}, {1, 1, -2}, {0.9f, 0.8f, 1.0f}},
      {"L2: g + 0.5 w", {.rule = sgd({.learning_rate = 0.1f, .weight_decay = 0.5f})}, {1, 0}, {0.85f, 0.8075f}},
      {"m is 1, 1.9, 2.71", {.rule = sgd({.learning_rate = 0.1f, .momentum = 0.9f})}, {1, 1, 1}, {0.9f, 0.71f, 0.439f}},
      {"momentum goes on without a gradient",
       {.rule = sgd({.learning_rate = 0.1f, .momentum = 0.5f})},
       {1, 0, 0},
       {0.9f, 0.85f, 0.825f}},
      {"g + 0.9 m is 1.9, 2.71",
       {.rule = sgd({.learning_rate = 0.1f, .momentum = 0.9f, .nesterov = true})},
       {1, 1},
       {0.81f, 0.539f}},
      {"by the rate where g does not change",
       {.rule = adam({.learning_rate = 0.01f})},
       {4, 4, 4},
       {0.99f, 0.98f, 0.97f}},
      // m̂ = (0.9·0.1·4 - 0.1·4)/(1 - 0.81) = -0.04/0.19, v̂ = 16.
      {"the gradient turns",
       {.rule = adam({.learning_rate = 0.01f})},
       {4, -4},
       {0.99f, 0.99f + 0.01f * 0.04f / 0.19f / 4.0f}},
      {"w (1 - 0.01·0.5), then 0.01",
       {.rule = adamw({.learning_rate = 0.01f, .weight_decay = 0.5f})},
       {4, 4},
       {0.985f, 0.985f * 0.995f - 0.01f}},
      {"decay without a gradient", {.rule = adamw({.learning_rate = 0.01f, .weight_decay = 0.5f})}, {0}, {0.995f}},
      // Eight gradients of 3 have a norm of 3√8; cut to √8 each is 1.
      {"clipped to a norm of √8",
       {.rule = sgd({.learning_rate = 0.1f}), .clip_norm = 2.828427125f},
       {3, 0.5f},
       {0.9f, 0.85f}}};
}

TEST_P(OptimizerStepsTest, RulesMoveAsWorkedOutByHand) {
  for (const ByHand& rule : worked_out()) {
    EightWeights run(runtime(), device(), rule.options);
    for (std::size_t t = 0; t < rule.gradients.size(); ++t) {
      run.update(rule.gradients[t]);
      for (const float value : run.values())
        EXPECT_NEAR(value, rule.weights[t], kNear) << rule.name << ", update " << t + 1;
    }
  }
}

TEST_P(OptimizerStepsTest, TheNormIsOfAllGradients) {
  EightWeights run(runtime(), device(), {.rule = sgd({.learning_rate = 0.0f})});
  run.update({3, 0, 0, 0, 0, 0, 0, -4});
  EXPECT_FLOAT_EQ(run.optimizer.control().gradient_norm, 5.0f);
  EXPECT_EQ(run.values(), std::vector<float>(8, 1.0f)) << "a rate of 0";
}

TEST_P(OptimizerStepsTest, TheLossScaleDoublesAfterFiniteUpdatesAndHalvesAfterOthers) {
  EightWeights run(runtime(), device(),
                   {.rule = sgd({.learning_rate = 0.1f}), .initial_loss_scale = 64.0f, .loss_scale_growth_interval = 2},
                   {PrecisionKind::mixed_float16});
  const float bad = std::numeric_limits<float>::infinity();
  const float gradients[] = {64, 64, 0, bad, 0, 0, bad, bad};
  const float scales[] = {64, 128, 128, 64, 64, 128, 64, 32};
  for (std::size_t t = 0; t < std::size(gradients); ++t) {
    run.update(gradients[t]);
    EXPECT_EQ(run.optimizer.control().loss_scale, scales[t]) << "update " << t + 1;
  }
  EXPECT_NEAR(run.values()[3], 0.8f, kNear) << "64 at a scale of 64 is a gradient of 1";
  EXPECT_EQ(run.optimizer.control().updates, 5);
  EXPECT_EQ(run.optimizer.control().skipped, 3);
  EXPECT_EQ(run.optimizer.control().skipped_in_a_row, 2);
}

/// Weights, moments and Adam's t are those of a run that never saw the bad gradient, bit by bit.
TEST_P(OptimizerStepsTest, ASkippedUpdateChangesNothingOfWhatFollows) {
  std::vector<std::vector<float>> ends;
  for (const bool skips : {false, true}) {
    EightWeights run(runtime(), device(), {.rule = adam({.learning_rate = 0.05f, .weight_decay = 0.1f})});
    for (std::uint64_t t = 0; t < 4; ++t) {
      if (skips && t == 2) {
        std::vector<float> bad(8, 1.0f);
        bad[7] = std::numeric_limits<float>::quiet_NaN();
        run.update(bad);
      }
      run.update(testing::random_floats(8, t));
    }
    EXPECT_EQ(run.optimizer.control().skipped, skips ? 1 : 0);
    EXPECT_EQ(run.optimizer.control().updates, 4);
    ends.push_back(run.values());
  }
  EXPECT_EQ(ends[0], ends[1]);
}

TEST_P(OptimizerStepsTest, WarmingUpChangesNothing) {
  EightWeights run(runtime(), device(), {.rule = adam({.learning_rate = 0.05f})});
  EightWeights cold(runtime(), device(), {.rule = adam({.learning_rate = 0.05f})});
  run.optimizer.warm_up();
  EXPECT_EQ(run.optimizer.control().updates, 0);
  EXPECT_EQ(run.optimizer.control().skipped, 0);
  for (EightWeights* each : {&run, &cold}) each->update({1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(run.values(), cold.values());
}

}  // namespace
}  // namespace bantam::optimizer_steps_test
