// Advice: every change that is named makes the step fit, and it is the step asked about but for that change.
#include "bantam/engine/plan/oom_advice.h"

#include "tests/engine/engine_fixture.h"

namespace bantam::testing::oom_advice_test {
namespace {

Graph chain() {
  Graph graph({16, 16, 4});
  for (int i = 0; i < 6; ++i) {
    const std::string block = "block" + std::to_string(i);
    graph.add(block + "/conv", conv2d({.filters = 16, .kernel = {3, 3}, .padding = Padding::same()}));
    graph.add(block + "/norm", batch_norm({.activation = {Activation::relu}}));
  }
  graph.add(global_average_pool());
  graph.add("head", dense({.units = 4}));
  return graph;
}

OomQuestion question(std::uint64_t bytes) {
  return {.step = {.batch = 96, .accumulate = 2, .device = Device::cuda()},
          .bytes = bytes,
          .rates = typical_rates(Device::cuda(), {})};
}

TEST(OomAdvice, EveryEditFits) {
  const Graph graph = chain();
  const std::uint64_t peak = step_peak(graph, question(1).step);
  OomQuestion asked = question(peak * 85 / 100);
  asked.pool = [&](const StepPlanOptions& step) { return step_peak(graph, step) + 256; };
  const OomAdvice advice = advise(graph, asked);
  EXPECT_EQ(advice.peak_bytes, peak);
  ASSERT_EQ(advice.edits.size(), 3u);
  using Kind = FittingEdit::Kind;
  for (const FittingEdit& edit : advice.edits) {
    EXPECT_LE(step_peak(graph, edit.step), asked.bytes) << static_cast<int>(edit.kind);
    EXPECT_EQ(step_peak(graph, edit.step), edit.peak_bytes);
    EXPECT_EQ(edit.pool_bytes, edit.peak_bytes + 256);
    EXPECT_EQ(edit.step.batch * edit.step.accumulate, 96 * 2) << "the effective batch stays";
    EXPECT_EQ(edit.step.batch == 96, edit.kind != Kind::batch);
    EXPECT_EQ(edit.step.model.precision == Precision{}, edit.kind != Kind::precision);
    EXPECT_EQ(edit.extra_work > 0, edit.kind == Kind::recompute);
    EXPECT_EQ(edit.changes_statistics, edit.kind == Kind::batch) << "batch norm sees fewer samples";
  }
  EXPECT_EQ(advice.edits[0].kind, Kind::precision);
  EXPECT_EQ(advice.edits[1].kind, Kind::recompute);
  EXPECT_EQ(advice.edits[2].kind, Kind::batch);
}

TEST(OomAdvice, TheLimitItNeedsIsEnoughAndNotMuchMore) {
  const Graph graph = chain();
  const OomQuestion asked = question(1 << 20);
  const OomAdvice advice = advise(graph, asked);
  EXPECT_GE(advice.needed_bytes, advice.peak_bytes);
  EXPECT_TRUE(step_fits(graph, asked.step, advice.needed_bytes));
  EXPECT_FALSE(step_fits(graph, asked.step, advice.needed_bytes * 97 / 100));
}

TEST(OomAdvice, NamesNothingThatDoesNotFit) {
  const OomAdvice advice = advise(chain(), question(64 << 10));  // the weights alone need more
  EXPECT_TRUE(advice.edits.empty());
}

TEST(OomAdvice, WithoutBatchNormASmallerBatchIsTheSameFunction) {
  Graph graph({16, 16, 4});
  graph.add("conv", conv2d({.filters = 16, .kernel = {3, 3}}));
  graph.add(global_average_pool());
  graph.add("head", dense({.units = 4}));
  OomQuestion asked = question(1);
  asked.step.device = Device::cpu();  // a GPU's workspace is the same for every batch
  asked.bytes = step_peak(graph, asked.step) * 3 / 4;
  const OomAdvice advice = advise(graph, asked);
  ASSERT_FALSE(advice.edits.empty());
  EXPECT_EQ(advice.edits.back().kind, FittingEdit::Kind::batch);
  EXPECT_FALSE(advice.edits.back().changes_statistics);
}

TEST(OomAdvice, AsksTheRunWhereItIsTold) {
  const Graph graph = chain();
  OomQuestion asked = question(step_peak(graph, question(1).step) * 3 / 4);
  asked.pool = [&](const StepPlanOptions& step) {
    return step.batch <= 12 ? 0 : asked.bytes + 1;
  };  // data use the rest
  const OomAdvice advice = advise(graph, asked);
  ASSERT_EQ(advice.edits.size(), 1u);
  EXPECT_EQ(advice.edits[0].step.batch, 12);
  EXPECT_EQ(advice.edits[0].step.accumulate, 16);
}

TEST(OomAdvice, NamesNothingThatNeedsMore) {
  const Graph graph = chain();
  OomQuestion asked = question(1 << 30);  // all of it would fit, so something else was refused
  asked.pool = [](const StepPlanOptions& step) -> std::uint64_t {
    return step.model.precision.kind == PrecisionKind::mixed_float16 ? 1001 : step.batch < 96 ? 999 : 1000;
  };
  const OomAdvice advice = advise(graph, asked);
  ASSERT_EQ(advice.edits.size(), 1u);
  EXPECT_EQ(advice.edits[0].kind, FittingEdit::Kind::batch);
}

}  // namespace
}  // namespace bantam::testing::oom_advice_test
