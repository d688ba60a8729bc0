// Narrow gradients of convolutions: an update, whoever reads them, and when, and recorded steps find the bits
// of wide ones.
#include "bantam/engine/autograd/partial_gradients.h"
#include "bantam/engine/ops/conv2d.h"
#include "bantam/engine/step/captured_updates.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/walk.h"

namespace bantam::narrow_gradients_of_model_test {
namespace {

using testing::EngineTest;

class NarrowGradientsOfModelTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(NarrowGradientsOfModelTest);

const Shape kImage = {12, 12, 8};
constexpr PrecisionKind kHalfPrecisions[] = {PrecisionKind::mixed_float16, PrecisionKind::mixed_bfloat16};
constexpr int kNarrowOfGraph = 3;

/// Three convolutions whose gradients may be narrow, and one (the third) whose elements do not fill weight blocks.
Graph four_convolutions() {
  Graph graph(kImage);
  for (const std::int64_t filters : {16, 8, 8, 32}) {
    graph.add(conv2d({.filters = filters, .kernel = {3, 3}, .padding = Padding::same(), .bias = false}));
    graph.add(batch_norm({.activation = {Activation::relu}}));
  }
  graph.add(global_average_pool());
  graph.add("head", dense({.units = 5}));
  return graph;
}

struct Trained {
  Trained(Runtime& runtime, Device device, PrecisionKind precision, OptimizerOptions options = {.clip_norm = 0.1f})
      : model(runtime, device, four_convolutions(), {.precision = {precision}, .seed = 4}),
        optimizer(model, options),
        step(model, optimizer, {}) {}
  Batch batch(std::int64_t first, std::int64_t samples) {
    return testing::make_batch(model.context(Pass::train), kImage, 5, first, samples);
  }
  std::vector<float> floats(const Tensor& tensor) {
    return to_host<float>(tensor, model.runtime().stream(model.device()));
  }
  std::vector<float> gradients() { return floats(model.parameters().gradient()); }
  std::vector<float> weights() { return floats(model.parameters().master()); }
  /// Forward and backward as a program's own loop would, where none stays narrow.
  void walk(const Batch& batch, std::int64_t effective_batch) {
    testing::walk(model, optimizer, batch, effective_batch);
    EXPECT_EQ(narrow(), 0);
  }
  int narrow() { return model.parameters().partial_gradients().narrow().count; }
  int expected_narrow() const { return model.device().is_cuda() ? kNarrowOfGraph : 0; }

  Model model;
  Optimizer optimizer;
  TrainingStep step;
};

TEST_P(NarrowGradientsOfModelTest, ReadingThemReturnsTheGradientsOfABackwardWithoutThem) {
  for (const PrecisionKind kind : kHalfPrecisions) {
    Trained stays(runtime(), device(), kind), plain(runtime(), device(), kind);
    stays.step.micro_batch(stays.batch(0, 6), 0, 6);
    plain.walk(plain.batch(0, 6), 6);
    EXPECT_EQ(stays.narrow(), stays.expected_narrow());
    EXPECT_EQ(stays.gradients(), plain.gradients());
    EXPECT_EQ(stays.narrow(), 0);
    for (const Parameter& parameter : stays.model.parameters().all())
      EXPECT_EQ(stays.floats(parameter.gradient()),
                plain.floats(plain.model.parameters().find(parameter.name())->gradient()));
  }
}

TEST_P(NarrowGradientsOfModelTest, Float32StaysWide) {
  Trained run(runtime(), device(), PrecisionKind::float32);
  run.step.micro_batch(run.batch(0, 6), 0, 6);
  EXPECT_EQ(run.narrow(), 0);
}

TEST_P(NarrowGradientsOfModelTest, MicroBatchesAddUp) {
  for (const PrecisionKind kind : kHalfPrecisions) {
    Trained stays(runtime(), device(), kind), plain(runtime(), device(), kind);
    for (std::int64_t i = 0; i < 3; ++i) {
      stays.step.micro_batch(stays.batch(4 * i, 4), 4 * i, 12);
      plain.walk(plain.batch(4 * i, 4), 12);
      EXPECT_EQ(stays.narrow(), i == 0 ? stays.expected_narrow() : 0);
    }
    EXPECT_EQ(stays.gradients(), plain.gradients());
  }
}

TEST_P(NarrowGradientsOfModelTest, AnUpdateIsTheSameBitsWhetherTheyStayOrWereRead) {
  const OptimizerOptions of_adam{.clip_norm = 0.1f},
      of_sgd{.rule = sgd({.weight_decay = 1e-3f, .momentum = 0.9f, .nesterov = true}), .decay_biases = false},
      plain_sgd{.rule = sgd()};
  for (const PrecisionKind kind : kHalfPrecisions) {
    for (const OptimizerOptions& options : {of_adam, of_sgd, plain_sgd}) {
      Trained stays(runtime(), device(), kind, options), reads(runtime(), device(), kind, options);
      for (std::int64_t i = 0; i < 3; ++i) {
        for (Trained* run : {&stays, &reads}) {
          run->step.micro_batch(run->batch(8 * i, 8), 0, 8);
          if (run == &reads) (void)run->gradients();
          run->step.update();
        }
        EXPECT_EQ(stays.narrow(), stays.expected_narrow());
        EXPECT_EQ(reads.narrow(), 0);
      }
      EXPECT_EQ(stays.optimizer.control().updates, 3);
      EXPECT_EQ(stays.optimizer.control().gradient_norm, reads.optimizer.control().gradient_norm);
      EXPECT_EQ(stays.weights(), reads.weights());
      EXPECT_EQ(stays.gradients(), reads.gradients());  // after the update, too
    }
  }
}

TEST_P(NarrowGradientsOfModelTest, WhatIsDiscardedHasNoEffect) {
  std::vector<std::vector<float>> weights;
  for (const bool discards : {false, true}) {
    Trained run(runtime(), device(), PrecisionKind::mixed_float16);
    if (discards) {
      run.step.micro_batch(run.batch(40, 6), 0, 6);
      run.step.discard();
    }
    run.step.micro_batch(run.batch(0, 6), 0, 6);
    run.step.evaluate(run.batch(50, 3));
    EXPECT_EQ(run.narrow(), run.expected_narrow());
    run.step.update();
    run.optimizer.warm_up();  // zeros and an infinity in their places
    EXPECT_EQ(run.narrow(), 0);
    weights.push_back(run.weights());
  }
  EXPECT_EQ(weights[0], weights[1]);
}

TEST_P(NarrowGradientsOfModelTest, AnUpdateIsSkippedForWhatIsNotFiniteInThem) {
  Trained run(runtime(), device(), PrecisionKind::mixed_float16);
  const std::vector<float> before = run.weights();
  Batch batch = run.batch(0, 6);
  const Half bad(INFINITY);
  copy_bytes(batch.at(kImages).data(), &bad, sizeof(bad), run.model.runtime().stream(device()));
  run.step.micro_batch(batch, 0, 6);
  run.step.update();
  EXPECT_EQ(run.optimizer.control().skipped, 1);
  EXPECT_EQ(run.weights(), before);
}

/// A weight used twice in one backward, or frozen.
TEST_P(NarrowGradientsOfModelTest, AWeightUsedTwiceIsAddedUpAndAFrozenOneLeftAlone) {
  for (const bool frozen : {false, true}) {
    std::vector<std::vector<float>> gradients;
    for (const bool pends : {false, true}) {
      Context ctx = context({PrecisionKind::mixed_float16});
      ParameterArena arena;
      Parameter& weight = arena.declare(
          {.name = "weight", .shape = {16, 3, 3, 16}, .initializer = glorot_uniform({144, 144}), .frozen = frozen});
      arena.materialize(ctx, 7);
      Tape tape;
      ctx.tape = &tape;
      if (pends) ctx.step.gradients = &arena.partial_gradients();
      const Tensor x = testing::random_tensor(ctx, {2, 9, 8, 16}, 1);
      const Window2d window{.kernel = {3, 3}, .padding = Padding::same()};
      const Tensor y = ops::conv2d(ctx, ops::conv2d(ctx, x, weight.value(), window), weight.value(), window);
      if (y.value_id() != 0) (void)tape.backward(ctx, y, testing::random_tensor(ctx, y.shape(), 2));
      EXPECT_EQ(arena.partial_gradients().narrow().count, 0);  // the second use made the first's wide
      EXPECT_EQ(weight.gradient().defined(), !frozen);
      if (!frozen) gradients.push_back(to_host<float>(weight.gradient(), ctx.stream));
    }
    if (frozen) continue;
    EXPECT_EQ(gradients[0], gradients[1]);
    EXPECT_NE(gradients[0], std::vector<float>(16 * 9 * 16));
  }
}

TEST_P(NarrowGradientsOfModelTest, RecordedUpdatesKeepThemAsTheyWereRecorded) {
  if (!device().is_cuda()) GTEST_SKIP() << "nothing is recorded on a CPU";
  Trained eager(runtime(), device(), PrecisionKind::mixed_float16);
  Runtime fresh({.threads = 2});
  Trained recorded(fresh, device(), PrecisionKind::mixed_float16);
  recorded.step.prepare({.batches = {6}});
  const Batch batch = recorded.batch(0, 6), same = eager.batch(0, 6);
  recorded.step.step(batch);
  (void)recorded.gradients();
  const auto updates = recorded.step.capture([&] {
    recorded.step.step(batch);
    recorded.step.step(batch);
  });
  EXPECT_EQ(recorded.narrow(), 0);  // nothing has run
  for (int i = 0; i < 5; ++i) eager.step.step(same);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(recorded.step.replay(*updates));
    EXPECT_EQ(recorded.narrow(), kNarrowOfGraph);
    if (i == 0) (void)recorded.gradients();
    EXPECT_EQ(recorded.narrow(), i == 0 ? 0 : kNarrowOfGraph);
  }
  EXPECT_EQ(recorded.weights(), eager.weights());
  EXPECT_EQ(recorded.gradients(), eager.gradients());
}

}  // namespace
}  // namespace bantam::narrow_gradients_of_model_test
