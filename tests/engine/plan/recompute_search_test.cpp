// Budgets: what is chosen fits, costs little more than the best there is, and changes no bit of the result.
#include "bantam/engine/plan/recompute_search.h"

#include <algorithm>

#include "bantam/base/error.h"
#include "bantam/engine/plan/recompute_policies.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::testing::recompute_search_test {
namespace {

/// Residual blocks that shrink as a classifier's do, between a stem and a head.
Graph network(int blocks) {
  Graph graph({16, 16, 3});
  graph.add("stem", conv2d({.filters = 8, .kernel = {3, 3}, .padding = Padding::same(), .bias = false}));
  graph.add("stem_norm", batch_norm({.activation = {Activation::relu}}));
  for (int i = 0; i < blocks; ++i) {
    const std::string name = "block" + std::to_string(i + 1);
    if (i == blocks / 2) graph.add("pool", max_pool());
    const NodeId x = graph.output();
    graph.add(name + "/conv1", conv2d({.filters = 8, .kernel = {3, 3}, .padding = Padding::same(), .bias = false}));
    graph.add(name + "/norm1", batch_norm({.activation = {Activation::relu}}));
    graph.add(name + "/conv2", conv2d({.filters = 8, .kernel = {1, 1}, .bias = false}));
    const NodeId y = graph.add(name + "/norm2", batch_norm());
    graph.add(name + "/add", add({Activation::relu}), {y, x});
  }
  graph.add(global_average_pool());
  graph.add("head", dense({.units = 5}));
  return graph;
}

constexpr std::int64_t kBatch = 32;
const DeviceRates kRates = typical_rates(Device::cpu(), {});

RecomputeQuestion question(std::uint64_t bytes) {
  return {.step = {.batch = kBatch, .device = Device::cpu()},
          .bytes = bytes,
          .rates = kRates,
          .fits = [](const RecomputeOptions&) { return true; }};  // the planned peak alone decides
}

StepPlanOptions step_with(const RecomputeOptions& recompute) {
  StepPlanOptions step = question(1).step;
  step.model.recompute = recompute;
  return step;
}

std::uint64_t peak_with(const Graph& graph, const RecomputeOptions& recompute) {
  return step_peak(graph, step_with(recompute));
}

/// Every list of segments over the units, from unit `first` on; `at_cuts`: of those between points where one value
/// crosses the graph.
void all_lists(const SegmentEstimates& units, bool at_cuts, std::size_t first, SegmentList& list,
               std::vector<SegmentList>& found) {
  if (first == units.units()) return found.push_back(list);
  all_lists(units, at_cuts, first + 1, list, found);
  for (std::size_t last = first; last < units.units(); ++last) {
    if (!units.valid({first, last})) continue;
    if (at_cuts && (!units.valid({0, last}) || (first > 0 && !units.valid({0, first - 1})))) continue;
    list.push_back({first, last});
    all_lists(units, at_cuts, last + 1, list, found);
    list.pop_back();
  }
}

struct PricedPolicy {
  std::uint64_t peak = 0;
  double extra = 0;
};

/// All policies of a graph, or those that segment between cuts.
std::vector<PricedPolicy> all_policies(const Graph& graph, bool at_cuts) {
  const StepPlanOptions none = step_with({});
  const StepCost cost = predict_cost(graph, none, kRates);
  const auto units = recompute_units(graph, none, plan_step(graph, none), cost);
  const double seconds = step_seconds(graph, none, kRates);
  std::vector<SegmentList> lists;
  SegmentList list;
  all_lists({graph, cost, units, units}, at_cuts, 0, list, lists);
  std::vector<PricedPolicy> all;
  for (const SegmentList& segments : lists)
    for (const Derive derive : {Derive::none, Derive::inner, Derive::cheap})
      for (const bool whole : {false, true}) {
        const RecomputeOptions options = name_segments(graph, units, segments, {.derive = derive, .whole = whole});
        PricedPolicy policy;
        policy.peak = step_peak(graph, step_with(options), [&](const kernels::KernelLog& log) {
          policy.extra = predict_seconds(log, kRates) / seconds - 1;
        });
        all.push_back(policy);
      }
  return all;
}

TEST(RecomputeSearch, NothingIsRecomputedWhereAllFits) {
  const Graph graph = network(3);
  const RecomputeChoice choice = search_recompute(graph, question(peak_with(graph, {})));
  EXPECT_TRUE(choice.fits);
  EXPECT_EQ(choice.recompute.kind, RecomputeOptions::Kind::none);
  EXPECT_EQ(choice.recompute.derive, Derive::none);
  EXPECT_EQ(choice.extra_work, 0.0);
}

TEST(RecomputeSearch, IsNearTheBestOfAllPolicies) {
  for (const bool at_cuts : {false, true}) {
    const Graph graph = network(at_cuts ? 3 : 1);
    const std::vector<PricedPolicy> all = all_policies(graph, at_cuts);
    const std::uint64_t most = peak_with(graph, {});
    const std::uint64_t least = std::ranges::min(all, {}, &PricedPolicy::peak).peak;
    ASSERT_LT(least, most * 92 / 100);
    for (int i = 0; i <= 20; ++i) {
      const std::uint64_t bytes = most - (most - least) * static_cast<std::uint64_t>(i) / 20;
      const RecomputeChoice choice = search_recompute(graph, question(bytes));
      ASSERT_TRUE(choice.fits) << bytes;
      EXPECT_LE(choice.peak_bytes, bytes);
      EXPECT_EQ(choice.peak_bytes, peak_with(graph, choice.recompute));
      double best = 1e9;
      for (const PricedPolicy& policy : all)
        if (policy.peak <= bytes) best = std::min(best, policy.extra);
      // Beside policies by the layer, whose peaks are gradients', the search is less sure of itself.
      EXPECT_LE(choice.extra_work, best * (at_cuts ? 1.1 : 1.25) + 1e-3)
          << "of a peak of " << most << " to fit " << bytes;
      if (!at_cuts) {
        EXPECT_GE(choice.extra_work, best - 1e-9);
      }
    }
  }
}

TEST(RecomputeSearch, WhatIsPredictedIsThePolicysOwnStep) {
  const Graph graph = network(4);
  const RecomputeChoice choice = search_recompute(graph, question(peak_with(graph, {}) * 4 / 5));
  ASSERT_TRUE(choice.fits);
  EXPECT_GT(choice.extra_work, 0.0);
  EXPECT_DOUBLE_EQ(choice.extra_work, extra_work(graph, step_with(choice.recompute), kRates));
}

TEST(RecomputeSearch, SaysWhereNothingFits) {
  const Graph graph = network(3);
  const RecomputeChoice choice = search_recompute(graph, question(100'000));
  EXPECT_FALSE(choice.fits);
  EXPECT_GT(choice.peak_bytes, 100'000u);
  EXPECT_LT(choice.peak_bytes, peak_with(graph, {})) << "the rest tells of the policy with the lowest peak";
  EXPECT_THROW((void)search_recompute(graph, question(0)), Error);
}

TEST(RecomputeSearch, ASegmentAtTheBeginningDoesNotPayForDerivedTensorsAfterIt) {
  const Graph graph = network(6);
  const auto extra = [&](const RecomputeOptions& recompute) { return extra_work(graph, step_with(recompute), kRates); };
  const auto derived = [&](const std::string& segment) {
    return extra({RecomputeOptions::Kind::named, {segment}, Derive::cheap}) -
           extra({RecomputeOptions::Kind::named, {segment}});
  };
  const double all = extra({.derive = Derive::cheap});
  EXPECT_GT(derived("stem..stem_norm"), all * 0.7) << "the blocks after it have most of what is derived";
  EXPECT_NEAR(derived("stem..stem_norm"), derived("pool..head"), all * 0.6) << "wherever the segment lies";
}

TEST(RecomputeSearch, TheAllocatorHasTheLastWord) {
  const Graph graph = network(4);
  RecomputeQuestion asked = question(peak_with(graph, {}) * 9 / 10);
  asked.fits = {};  // step_fits: regions and their fragmentation count
  const RecomputeChoice choice = search_recompute(graph, asked);
  ASSERT_TRUE(choice.fits);
  StepPlanOptions step = asked.step;
  step.model.recompute = choice.recompute;
  EXPECT_TRUE(step_fits(graph, step, asked.bytes));
}

TEST(RecomputeSearch, IsTheSameEveryTimeAndQuick) {
  const Graph graph = network(16);
  const std::uint64_t bytes = peak_with(graph, {}) / 2;
  const RecomputeChoice first = search_recompute(graph, question(bytes)),
                        second = search_recompute(graph, question(bytes));
  ASSERT_TRUE(first.fits);
  EXPECT_EQ(first.recompute.names, second.recompute.names);
  EXPECT_EQ(first.recompute.derive, second.recompute.derive);
  EXPECT_LT(first.plans, 1100) << "of some milliseconds each";
}

// Each point is a plan, none is beaten by another, and none by what is found for its bytes alone by more than searches
// from other budgets may differ.
TEST(RecomputeCurve, FallsFromNothingRecomputedToTheLeastBytes) {
  const Graph graph = network(8);
  const std::vector<RecomputePoint> curve = recompute_curve(graph, question(1));
  ASSERT_GT(curve.size(), 4u);
  EXPECT_EQ(curve.front().recompute.kind, RecomputeOptions::Kind::none);
  EXPECT_EQ(curve.front().recompute.derive, Derive::none);
  EXPECT_EQ(curve.front().peak_bytes, peak_with(graph, {}));
  EXPECT_EQ(curve.front().extra_work, 0);
  for (std::size_t i = 0; i < curve.size(); ++i) {
    const RecomputePoint& point = curve[i];
    EXPECT_EQ(point.peak_bytes, peak_with(graph, point.recompute)) << i;
    EXPECT_DOUBLE_EQ(point.seconds, step_seconds(graph, step_with(point.recompute), kRates)) << i;
    const RecomputeChoice alone = search_recompute(graph, question(point.peak_bytes));
    EXPECT_LE(point.extra_work, alone.extra_work + 0.02) << i;
    if (i == 0) continue;
    EXPECT_LT(point.peak_bytes, curve[i - 1].peak_bytes);
    EXPECT_GT(point.extra_work, curve[i - 1].extra_work - 0.01) << "but for the charge for segments";
  }
  const RecomputeChoice nothing = search_recompute(graph, question(curve.back().peak_bytes * 8 / 10));
  EXPECT_FALSE(nothing.fits) << "a tenth below the last point there is none";
  const std::vector<RecomputePoint> again = recompute_curve(graph, question(1));
  ASSERT_EQ(again.size(), curve.size());
  for (std::size_t i = 0; i < curve.size(); ++i) EXPECT_EQ(again[i].peak_bytes, curve[i].peak_bytes);
}

TEST(RecomputeSearch, TheChoiceChangesNoBit) {
  const auto weights = [](const RecomputeOptions& recompute) {
    Runtime runtime({.threads = 2});
    Model model(runtime, Device::cpu(), network(3), {.seed = 3, .recompute = recompute});
    Optimizer optimizer(model, {});
    TrainingStep step(model, optimizer, {});
    const Context context = model.context(Pass::train);
    for (std::int64_t i = 0; i < 3; ++i) step.step(make_batch(context, {16, 16, 3}, 5, 16 * i, 16));
    return to_host<float>(model.parameters().master(), context.stream);
  };
  const Graph graph = network(3);
  const RecomputeChoice choice = search_recompute(graph, question(peak_with(graph, {}) * 23 / 25));
  ASSERT_TRUE(choice.fits);
  ASSERT_GT(choice.extra_work, 0.0) << "something is recomputed";
  EXPECT_EQ(weights(choice.recompute), weights({}));
}

}  // namespace
}  // namespace bantam::testing::recompute_search_test
