// Arena layout, initial values, and initialisers' distributions.
#include <utility>

#include "bantam/base/error.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::parameters_test {
namespace {

using testing::EngineTest;

class ParametersTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(ParametersTest);

TEST_P(ParametersTest, SpansStandInReverseForwardOrderAndAreAligned) {
  ParameterArena arena;
  arena.declare({.name = "first", .shape = {3}, .initializer = constant(1)});
  arena.declare({.name = "second", .shape = {200}, .initializer = constant(2)});
  arena.declare({.name = "third", .shape = {128}, .initializer = constant(3)});
  EXPECT_THROW(arena.declare({.name = "first", .shape = {1}, .initializer = zeros()}), ConfigError);
  const Context ctx = context({PrecisionKind::mixed_float16});
  arena.materialize(ctx, 1);
  EXPECT_EQ(arena.find("third")->offset(), 0);
  EXPECT_EQ(arena.find("second")->offset(), 128);
  EXPECT_EQ(arena.find("first")->offset(), 384);
  EXPECT_EQ(arena.slot_elements(), 512);
  EXPECT_EQ(arena.parameter_count(), 331);
  EXPECT_EQ(arena.span_of_weight_block(), (std::vector<std::int32_t>{0, 1, 1, 2}));
  const std::vector<float> master = to_host<float>(arena.master(), ctx.stream);
  const std::vector<float> compute = to_host_floats(arena.compute(), ctx.stream);
  EXPECT_EQ(master, compute);
  EXPECT_EQ(master[327], 2.0f);
  EXPECT_EQ(master[328], 0.0f);  // padding
  EXPECT_EQ(arena.find("first")->value().dtype(), DType::float16);
}

TEST_P(ParametersTest, InitialValuesDependOnSeedAndNameOnly) {
  const auto values = [&](std::uint64_t seed, bool other_first) {
    ParameterArena arena;
    const Fans fans{100, 50};
    if (other_first) arena.declare({.name = "other", .shape = {17}, .initializer = he_normal(fans)});
    arena.declare({.name = "w", .shape = {50, 100}, .initializer = glorot_uniform(fans)});
    arena.materialize(context(), seed);
    return to_host<float>(arena.find("w")->master(), context().stream);
  };
  EXPECT_EQ(values(1, false), values(1, true));
  EXPECT_NE(values(1, false), values(2, false));
}

/// A model of two dense layers with plain SGD, and a program that brings gradients of its own.
struct OwnGradients {
  OwnGradients(Runtime& runtime, Device device, PrecisionKind kind = PrecisionKind::float32)
      : model(runtime, device, two_layers(), {.precision = {kind}, .seed = 4}),
        optimizer(model, {.rule = sgd({.learning_rate = 0.5f}), .initial_loss_scale = 8.0f}),
        context(model.context(Pass::train)),
        first(*model.parameters().find("first/weight")),
        second(*model.parameters().find("second/weight")) {}
  static Graph two_layers() {
    Graph graph({2});
    graph.add("first", dense({.units = 2, .bias = false}));
    graph.add("second", dense({.units = 2, .bias = false}));
    return graph;
  }
  void write(Parameter& parameter, float value) {
    const Tensor place = parameter.gradient();
    const std::vector<float> values(4, value);
    copy_bytes(place.data(), values.data(), place.bytes(), context.stream);
    synchronize(context.stream);
  }
  /// A backward that reaches `second` only: its gradient is 3 everywhere, times the loss scale.
  void backward_of_second() {
    Tape tape;
    Context taped = context;
    taped.tape = &tape;
    const auto tensor = [&](float value) {
      const std::vector<float> values(2, value);
      return ops::cast(context, context.upload({1, 2}, values.data()), context.precision.compute());
    };
    const float scale = to_host<float>(optimizer.loss_scale(), context.stream)[0];
    const Tensor y = ops::dense(taped, tensor(3.0f), second.value());
    (void)tape.backward(taped, y, tensor(scale));
  }
  std::vector<float> weights(const Parameter& parameter) { return to_host<float>(parameter.master(), context.stream); }
  std::vector<float> moved(const Parameter& parameter, const std::vector<float>& before) {
    std::vector<float> steps = weights(parameter);
    for (std::size_t i = 0; i < steps.size(); ++i) steps[i] = before[i] - steps[i];
    return steps;
  }
  Model model;
  Optimizer optimizer;
  Context context;
  Parameter &first, &second;
};

/// Steps of 0.5 times the gradient, exact but for the weights' rounding.
void expect_steps(const std::vector<float>& steps, float expected) {
  for (const float step : steps) EXPECT_NEAR(step, expected, 1e-6);
}

TEST_P(ParametersTest, GradientsThatAProgramWroteMoveTheWeights) {
  for (const PrecisionKind kind : {PrecisionKind::float32, PrecisionKind::mixed_float16}) {
    OwnGradients run(runtime(), device(), kind);
    const float scale = to_host<float>(run.optimizer.loss_scale(), run.context.stream)[0];
    for (int update = 0; update < 2; ++update) {  // without any backward
      const std::vector<float> before = run.weights(run.first), other = run.weights(run.second);
      run.write(run.first, 0.25f * scale);
      run.optimizer.update();
      expect_steps(run.moved(run.first, before), 0.125f);
      EXPECT_EQ(run.weights(run.second), other) << "nobody wrote its gradient: zeros";
    }
    const std::vector<float> before = run.weights(run.first), other = run.weights(run.second);
    run.backward_of_second();
    EXPECT_EQ(to_host<float>(run.first.gradient(), run.context.stream), std::vector<float>(4, 0.0f))
        << "none of the last update's";
    run.write(run.first, 0.25f * scale);
    run.optimizer.update();
    expect_steps(run.moved(run.first, before), 0.125f);
    expect_steps(run.moved(run.second, other), 1.5f);
  }
}

TEST_P(ParametersTest, ABackwardAfterTheProgramOverwritesOrIsAnError) {
  OwnGradients run(runtime(), device());
  std::vector<float> before = run.weights(run.second);
  run.write(run.second, 100.0f);
  run.backward_of_second();
  run.optimizer.update();
  expect_steps(run.moved(run.second, before), 1.5f);
  before = run.weights(run.first);
  run.write(run.first, 100.0f);
  run.backward_of_second();
  try {
    run.optimizer.update();
    FAIL() << "what the program wrote was dropped";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the gradient of 'first/weight'"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("after backward"), std::string::npos) << error.what();
  }
  EXPECT_EQ(run.weights(run.first), before);
}

// After an update the gradients can still be looked at, by way of a const Parameter without any effect.
TEST_P(ParametersTest, LookingAtTheLastGradientsChangesNothing) {
  OwnGradients run(runtime(), device());
  run.backward_of_second();
  run.optimizer.update();
  EXPECT_EQ(to_host<float>(std::as_const(run.second).gradient(), run.context.stream), std::vector<float>(4, 3.0f));
  EXPECT_EQ(to_host<float>(std::as_const(run.first).gradient(), run.context.stream), std::vector<float>(4, 0.0f));
  const std::vector<float> before = run.weights(run.second);
  run.optimizer.update();
  EXPECT_EQ(run.weights(run.second), before) << "an update without any gradient";
}

TEST(InitializerTest, DistributionsHaveTheirMoments) {
  const std::int64_t count = 200000;
  const Fans fans{300, 100};
  const auto draw = [&](const Initializer& initializer) {
    std::vector<float> values(static_cast<std::size_t>(count));
    PhiloxSequence random(philox_key(5, RandomPurpose::initializer, 9));
    initializer.fill(values, {count}, random);
    return values;
  };
  const auto check = [&](const InitializerOptions& options, double deviation, double limit) {
    const std::string& name = options.name;
    double sum = 0, squares = 0, largest = 0;
    for (const float v : draw(make_initializer(options, fans))) {
      sum += static_cast<double>(v);
      squares += static_cast<double>(v) * static_cast<double>(v);
      largest = std::max(largest, std::abs(static_cast<double>(v)));
    }
    const double n = static_cast<double>(count);
    // Mean and variance of n draws scatter by about 1/√n = 0.0022 (relative to the deviation): five times that.
    EXPECT_NEAR(sum / n / deviation, 0, 0.012) << name;
    EXPECT_NEAR(std::sqrt(squares / n) / deviation, 1, 0.012) << name;
    EXPECT_LE(largest, limit) << name;
  };
  check("glorot_uniform", std::sqrt(2.0 / 400), std::sqrt(6.0 / 400));
  check("glorot_normal", std::sqrt(2.0 / 400), 1e9);
  check("he_uniform", std::sqrt(2.0 / 300), std::sqrt(6.0 / 300));
  check("he_normal", std::sqrt(2.0 / 300), 1e9);
  check("lecun_normal", std::sqrt(1.0 / 300), 1e9);
  check("fan_in_uniform", 1 / std::sqrt(900.0), 1 / std::sqrt(300.0));
  check("truncated_normal", 0.05 * 0.8796, 0.1);  // deviation of a normal cut at 2σ: 0.8796σ
  check({"truncated_normal", 0.02f}, 0.02 * 0.8796, 0.04);
  check("normal", 0.05, 1e9);
  check({"normal", 2.0f}, 2, 1e9);
  EXPECT_THROW((void)make_initializer("glorot", fans), ConfigError);
  EXPECT_THROW((void)make_initializer({"he_normal", 0.1f}, fans), ConfigError);
}

TEST_P(ParametersTest, BuffersStartAtTheirValueAndNextFollows) {
  BufferArena buffers;
  const Buffer& mean = buffers.declare("mean", {5}, 0.0f);
  const Buffer& variance = buffers.declare("variance", {5}, 1.0f);
  buffers.materialize(context());
  EXPECT_EQ(to_host<float>(buffers.current(mean), context().stream), std::vector<float>(5, 0.0f));
  EXPECT_EQ(to_host<float>(buffers.next(variance), context().stream), std::vector<float>(5, 1.0f));
  EXPECT_EQ(variance.offset % kernels::kWeightBlockSize, 0);
}

}  // namespace
}  // namespace bantam::parameters_test
