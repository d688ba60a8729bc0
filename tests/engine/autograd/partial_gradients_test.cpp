// Partial gradients: whoever reads them, and when, finds the gradients of a backward without partial sums; and
// memory and plans know of them.
#include "bantam/engine/autograd/partial_gradients.h"

#include "bantam/engine/fusion/fused_ops.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/walk.h"

namespace bantam::partial_gradients_test {
namespace {

using testing::EngineTest;

class PartialGradientsTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(PartialGradientsTest);

SeparableConv2dOptions relu_block(std::int64_t filters) {
  return {.filters = filters, .activation = {Activation::relu}};
}

/// Two separable blocks, as cifar10_separable has them, and a classifier.
Graph two_blocks() {
  Graph graph({12, 12, 3});
  graph.add("first", separable_conv2d(relu_block(16)));
  graph.add(max_pool());
  graph.add("second", separable_conv2d(relu_block(24)));
  graph.add(flatten());
  graph.add("head", dense({.units = 5}));
  return graph;
}

struct Trained {
  Trained(Runtime& runtime, Device device, const Graph& graph, ModelOptions options = {.seed = 4})
      : model(runtime, device, graph, options), optimizer(model, {.clip_norm = 1.0f}), step(model, optimizer, {}) {}
  Batch batch(std::int64_t first, std::int64_t samples) {
    return testing::make_batch(model.context(Pass::train), {12, 12, 3}, 5, first, samples);
  }
  std::vector<float> floats(const Tensor& tensor) {
    return to_host<float>(tensor, model.runtime().stream(model.device()));
  }
  /// Forward and backward as a program's own loop would, where no gradient waits.
  void walk(const Batch& batch, std::int64_t effective_batch) {
    testing::walk(model, optimizer, batch, effective_batch);
    EXPECT_EQ(model.parameters().partial_gradients().sums().count, 0);
  }
  int waiting() { return model.parameters().partial_gradients().sums().count; }
  int expected_waiting(int arrays) const { return model.device().is_cuda() ? arrays : 0; }

  Model model;
  Optimizer optimizer;
  TrainingStep step;
};

TEST_P(PartialGradientsTest, ReadingThemReturnsTheGradientsOfABackwardWithoutThem) {
  for (const PrecisionKind kind : {PrecisionKind::float32, PrecisionKind::mixed_float16}) {
    const ModelOptions options{.precision = {kind}, .seed = 4};
    Trained waits(runtime(), device(), two_blocks(), options), plain(runtime(), device(), two_blocks(), options);
    waits.step.micro_batch(waits.batch(0, 6), 0, 6);
    plain.walk(plain.batch(0, 6), 6);
    EXPECT_EQ(waits.waiting(), waits.expected_waiting(6));
    // One parameter's gradient, then all.
    EXPECT_EQ(waits.floats(waits.model.parameters().find("second/pointwise_weight")->gradient()),
              plain.floats(plain.model.parameters().find("second/pointwise_weight")->gradient()));
    EXPECT_EQ(waits.waiting(), 0);
    EXPECT_EQ(waits.floats(waits.model.parameters().gradient()), plain.floats(plain.model.parameters().gradient()));
  }
}

TEST_P(PartialGradientsTest, MicroBatchesAddUp) {
  Trained waits(runtime(), device(), two_blocks()), plain(runtime(), device(), two_blocks());
  for (std::int64_t i = 0; i < 3; ++i) {
    waits.step.micro_batch(waits.batch(4 * i, 4), 4 * i, 12);
    plain.walk(plain.batch(4 * i, 4), 12);
  }
  EXPECT_EQ(waits.waiting(), waits.expected_waiting(6));  // the last one's
  EXPECT_EQ(waits.floats(waits.model.parameters().gradient()), plain.floats(plain.model.parameters().gradient()));
}

TEST_P(PartialGradientsTest, ABlockWithAFrozenWeightDoesNotWait) {
  std::vector<std::vector<float>> depthwise;
  for (const bool frozen : {false, true}) {
    Context ctx = context();
    ParameterArena arena;
    const auto declare = [&](const char* name, Shape shape, bool freeze) -> Parameter& {
      return arena.declare({.name = name, .shape = shape, .initializer = glorot_uniform({72, 16}), .frozen = freeze});
    };
    Parameter &d = declare("depthwise", {3, 3, 8}, false), &p = declare("pointwise", {16, 8}, frozen);
    Parameter& b = declare("bias", {16}, false);
    arena.materialize(ctx, 7);
    Tape tape;
    ctx.tape = &tape;
    ctx.step.gradients = &arena.partial_gradients();
    const Tensor x = testing::random_tensor(ctx, {2, 9, 8, 8}, 1);
    const Tensor y = ops::separable_block(ctx, x, {d.value(), p.value(), b.value()}, {.relu = true});
    (void)tape.backward(ctx, y, testing::random_tensor(ctx, y.shape(), 2));
    EXPECT_EQ(arena.partial_gradients().sums().count, device().is_cuda() && !frozen ? 3 : 0);
    depthwise.push_back(to_host<float>(d.gradient(), ctx.stream));
    EXPECT_EQ(arena.partial_gradients().sums().count, 0);
  }
  EXPECT_EQ(depthwise[0], depthwise[1]);
}

TEST_P(PartialGradientsTest, AnUpdateIsTheSameWhetherTheyWaitOrWereRead) {
  std::vector<std::vector<float>> weights;
  for (const bool reads : {false, true}) {
    Trained run(runtime(), device(), two_blocks());
    for (std::int64_t i = 0; i < 3; ++i) {
      run.step.micro_batch(run.batch(8 * i, 8), 0, 8);
      if (reads) (void)run.model.parameters().gradient();
      run.step.update();
      EXPECT_EQ(run.waiting(), 0);
    }
    weights.push_back(run.floats(run.model.parameters().master()));
  }
  // The norm that clips is summed in double, in another order.
  EXPECT_LT(testing::relative_difference(weights[0], weights[1]), 1e-6);
}

TEST_P(PartialGradientsTest, WhatIsDiscardedHasNoEffect) {
  std::vector<std::vector<float>> weights;
  for (const bool discards : {false, true}) {
    Trained run(runtime(), device(), two_blocks());
    if (discards) {
      run.step.micro_batch(run.batch(40, 6), 0, 6);
      run.step.discard();
      EXPECT_EQ(run.waiting(), 0);
    }
    run.step.evaluate(run.batch(50, 3));
    run.step.micro_batch(run.batch(0, 6), 0, 6);
    run.step.evaluate(run.batch(50, 3));  // between: what waits is added up first
    EXPECT_EQ(run.waiting(), 0);
    run.step.update();
    weights.push_back(run.floats(run.model.parameters().master()));
  }
  EXPECT_EQ(weights[0], weights[1]);
}

TEST_P(PartialGradientsTest, AStepThatEndsBeforeItsUpdateKeepsGradientsAndNoArena) {
  Runtime fresh({.threads = 2});
  const Device where = device().is_cuda() ? device() : Device::meta_of(Device::cuda());
  Model model(fresh, where, two_blocks(), {.seed = 4});
  Optimizer optimizer(model, {});
  {
    TrainingStep step(model, optimizer, {});
    step.prepare({.batches = {6}});
    step.micro_batch(testing::make_batch(model.context(Pass::train), {12, 12, 3}, 5, 0, 6), 0, 6);
    EXPECT_EQ(model.parameters().partial_gradients().sums().count, device().is_cuda() ? 6 : 0);
    EXPECT_GT(fresh.allocator(where).stats().arena_bytes, 0u);
  }
  EXPECT_EQ(fresh.allocator(where).stats().arena_bytes, 0u);
  if (!device().is_cuda()) return;  // a stand-in's gradients have no values
  Trained plain(runtime(), device(), two_blocks());
  plain.walk(plain.batch(0, 6), 6);
  EXPECT_EQ(to_host<float>(model.parameters().gradient(), fresh.stream(where)),
            plain.floats(plain.model.parameters().gradient()));
}

TEST_P(PartialGradientsTest, AnUpdateIsSkippedForWhatIsNotFiniteInThem) {
  Trained run(runtime(), device(), two_blocks());
  const std::vector<float> before = run.floats(run.model.parameters().master());
  Batch batch = run.batch(0, 6);
  const float bad = INFINITY;
  copy_bytes(batch.at(kImages).data(), &bad, sizeof(bad), run.model.runtime().stream(device()));
  run.step.micro_batch(batch, 0, 6);
  run.step.update();
  EXPECT_EQ(run.optimizer.control().skipped, 1);
  EXPECT_EQ(run.floats(run.model.parameters().master()), before);
}

TEST_P(PartialGradientsTest, PlannedStepsFollowTheirPlans) {
  for (const bool accumulates : {false, true}) {
    Runtime fresh({.threads = 2});
    const Device where = device().is_cuda() ? device() : Device::meta_of(Device::cuda());
    Trained run(fresh, where, two_blocks());
    run.step.prepare({.batches = {6}, .evaluation_batches = {3}, .accumulates = accumulates});
    EXPECT_GT(run.step.arena_bytes(), 0u);
    const Batch batch = allocate_batch(run.model, 6), held_out = allocate_batch(run.model, 3);
    const MemoryStats before = fresh.allocator(where).stats();
    for (int update = 0; update < 3; ++update) {
      for (std::int64_t i = 0; i < (accumulates ? 3 : 1); ++i) run.step.micro_batch(batch, 6 * i, 18);
      if (update == 1) run.step.evaluate(held_out);
      run.step.update();
    }
    const MemoryStats after = fresh.allocator(where).stats();
    EXPECT_GT(after.allocations, before.allocations);
    EXPECT_EQ(after.planned_allocations - before.planned_allocations, after.allocations - before.allocations);
  }
}

}  // namespace
}  // namespace bantam::partial_gradients_test
