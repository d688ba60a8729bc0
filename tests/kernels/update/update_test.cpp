// The weight update: every optimizer by hand and against the textbook in double, frozen spans, copies, padding,
// threads.
#include "bantam/kernels/update/update.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

#include "bantam/kernels/update/update_reference.h"
#include "tests/kernels/update/update_arena.h"

namespace bantam::testing::update_test {
namespace {

using kernels::UpdateControl;
using kernels::UpdateGroup;
using kernels::UpdateKind;

constexpr double kUnit = 0x1p-24;  // half a unit in the last place of float32, relative

class UpdateTest : public DeviceTest {
 protected:
  /// The weight after each of three updates, from w = 0.5 with gradients 0.1, -0.2, 0.3.
  std::vector<float> three_steps(UpdateKind kind, const UpdateGroup& group) {
    TestArena arena(device(), {{1, {.group = 0, .compute_copy = 1}}}, {group}, DType::float32);
    arena.master.upload(arena.padded({{0.5f}}));
    std::vector<float> weights;
    for (const float g : {0.1f, -0.2f, 0.3f}) {
      arena.gradient.upload(arena.padded({{g}}));
      arena.step(kind);
      weights.push_back(arena.master.download()[0]);
      EXPECT_EQ(arena.compute.download()[0], weights.back());
    }
    EXPECT_EQ(arena.control_now().updates, 3);
    return weights;
  }
};

// 0.1f and its like are off by up to 4 units, and a step has a dozen operations: 32 units in all.
TEST_P(UpdateTest, EveryRuleByHand) {
  std::set<UpdateKind> kinds;
  for (const kernels::reference::WorkedExample& example : kernels::reference::kWorkedExamples) {
    SCOPED_TRACE(facts_of(example.kind).name);
    expect_close(three_steps(example.kind, example.group),
                 std::vector<double>(example.weights.begin(), example.weights.end()), 32 * kUnit);
    kinds.insert(example.kind);
  }
  for (const kernels::UpdateRuleFacts& rule : kernels::kUpdateRules)
    EXPECT_TRUE(rule.by_norm || kinds.contains(rule.kind)) << rule.name;
}

// Weights 0.3 and 0.4 have the norm 0.5, and the first step (1, -1) has √2: each weight moves by 0.1·0.5/√2. The other
// span has no weights yet, so its ratio is 1.
TEST_P(UpdateTest, LambByHand) {
  TestArena arena(device(), {{2, {.group = 0}}, {1, {.group = 0}}}, {{.learning_rate = 0.1f}});
  arena.master.upload(arena.padded({{0.3f, 0.4f}, {0}}));
  arena.gradient.upload(arena.padded({{0.1f, -0.2f}, {7}}));
  arena.step(UpdateKind::lamb);
  const std::vector<float> w = arena.master.download();
  expect_close({w[0], w[1], w[arena.offset(1)]}, std::vector<double>{0.26464466094, 0.43535533906, -0.1}, 16 * kUnit);
}

/// How far a kind moves a weight in an update of the test below, at most.
double longest_move(UpdateKind kind) {
  switch (kind) {
    case UpdateKind::rmsprop:
    case UpdateKind::rmsprop_centered:
      return 0.5;  // the root is a tenth of the first gradient
    case UpdateKind::rmsprop_momentum:
    case UpdateKind::rmsprop_centered_momentum:
      return 1.4;
    default:
      return 0.2;
  }
}

/// Gradients at a loss scale of 8.
std::vector<double> unscaled(const std::vector<float>& gradient) {
  std::vector<double> values;
  for (const float g : gradient) values.push_back(g / 8.0);
  return values;
}

/// Three updates of random weights with random gradients, and the same by the textbook in double.
void expect_reference(KernelDevice& device, UpdateKind kind, std::int64_t count, DType compute) {
  const UpdateGroup group{
      .learning_rate = 0.05f, .weight_decay = 0.02f, .beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-3f, .beta3 = 0.25f};
  TestArena arena(device, {{count, {.group = 0, .compute_copy = 1}}}, {group}, compute);
  arena.control.upload({{.loss_scale = 8}});
  const std::vector<float> start = arena.random_padded(1);
  std::vector<kernels::reference::WeightState<double>> states(start.size());
  for (std::size_t i = 0; i < start.size(); ++i) states[i].w = start[i];
  arena.master.upload(start);
  for (std::int64_t t = 1; t <= 3; ++t) {
    std::vector<float> gradient = arena.random_padded(static_cast<std::uint64_t>(10 * t), -8, 8);
    if (kind == UpdateKind::lion)  // whole numbers: no sign hangs on how a sum is rounded
      for (float& g : gradient) g = std::round(g);
    arena.gradient.upload(gradient);
    arena.step(kind);
    if (kind == UpdateKind::lamb) {
      kernels::reference::lamb_step<double>(group, t, unscaled(gradient), states);
      continue;
    }
    for (std::size_t i = 0; i < start.size(); ++i) {
      states[i] = kernels::reference::optimizer_step<double>(kind, group, t, gradient[i] / 8.0, states[i]);
    }
  }
  std::vector<double> w, m;
  for (const auto& state : states) {
    w.push_back(state.w);
    m.push_back(state.m);
  }
  // A step rounds w (2 units) and adds a part with some 32 units of its own.
  const std::vector<float> master = arena.master.download();
  expect_close(master, w, 3 * (2 + longest_move(kind) * 32) * kUnit);
  expect_close(arena.moment1.download(), m, 3 * 8 * kUnit);
  std::vector<float> copy;
  for (const float v : master) copy.push_back(rounded(v, compute));
  ASSERT_EQ(bits_of(arena.compute.download()), bits_of(copy));
  for (std::size_t i = static_cast<std::size_t>(count); i < master.size(); ++i) ASSERT_EQ(master[i], 0.0f) << "padding";
}

TEST_P(UpdateTest, EveryOptimizerIsTheTextbook) {
  for (const auto& [name, kind, slots, by_norm, decoupled] : kernels::kUpdateRules) {
    for (const DType compute : kernel_dtypes()) {
      for (const std::int64_t count : odd_counts()) {
        SCOPED_TRACE("optimizer " + std::string(name) + " " + std::string(to_string(compute)) + " " +
                     std::to_string(count));
        expect_reference(device(), kind, count, compute);
      }
    }
  }
}

/// Weights that lie in the compute slot alone: as with masters that are made float16 again before every update, bit for
/// bit, since both round the same float32 result once. The last span has a master, as batch norm's parameters do.
TEST_P(UpdateTest, WeightsWithoutMastersAreRoundedOnceAnUpdate) {
  const std::vector<TestSpan> spans = {
      {300, {.group = 0, .compute_copy = 1}}, {600001, {.group = 0, .compute_copy = 1}}, {70, {.group = 1}}};
  const UpdateGroup group{
      .learning_rate = 0.05f, .weight_decay = 0.02f, .beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-3f};
  for (const auto& [name, kind, slots, by_norm, decoupled] : kernels::kUpdateRules) {
    for (const DType dtype : {DType::float16, DType::bfloat16}) {
      SCOPED_TRACE("optimizer " + std::string(name) + " " + std::string(to_string(dtype)));
      TestArena with(device(), spans, {group, group}, dtype), without(device(), spans, {group, group}, dtype);
      const std::size_t first = with.offset(2);
      without.first_master = static_cast<std::int64_t>(first);
      without.keeps_masters = false;
      std::vector<float> start = with.random_padded(1);
      for (std::size_t i = 0; i < first; ++i) start[i] = rounded(start[i], dtype);
      with.master.upload(start);
      with.compute.upload(start);
      without.compute.upload(start);
      std::vector<float> tail(start.begin() + static_cast<std::ptrdiff_t>(first), start.end());
      tail.resize(start.size(), 1234.0f);
      without.master.upload(tail);
      for (std::uint64_t t = 1; t <= 3; ++t) {
        const std::vector<float> gradient = with.random_padded(10 * t);
        with.gradient.upload(gradient);
        without.gradient.upload(gradient);
        with.step(kind);
        without.step(kind);
        std::vector<float> master = with.master.download();
        const std::vector<float> copy = with.compute.download(), stored = without.compute.download(),
                                 kept = without.master.download();
        for (std::size_t i = 0; i < first; ++i) {
          ASSERT_EQ(stored[i], rounded(master[i], dtype)) << i << " of update " << t;
          master[i] = copy[i];
        }
        for (std::size_t i = first; i < master.size(); ++i) ASSERT_EQ(kept[i - first], master[i]) << i;
        for (std::size_t i = master.size() - first; i < kept.size(); ++i) ASSERT_EQ(kept[i], 1234.0f) << i;
        with.master.upload(master);
      }
      EXPECT_EQ(without.moment1.download(), with.moment1.download());
    }
  }
}

TEST_P(UpdateTest, LambHasARatioASpanAndLeavesFrozenOnesOut) {
  const UpdateGroup group{.learning_rate = 0.05f, .weight_decay = 0.02f, .epsilon = 1e-3f};
  const std::vector<std::int64_t> counts = {5, 300, 5000, 600001};
  TestArena arena(device(),
                  {{counts[0], {.group = 0, .compute_copy = 1}},
                   {counts[1], {.group = 0, .frozen = 1, .compute_copy = 1}},
                   {counts[2], {.group = 0}},
                   {counts[3], {.group = 0, .compute_copy = 1}}},
                  {group});
  EXPECT_EQ(arena.chunks().front().chunks, 1);
  EXPECT_EQ(arena.chunks().back().chunks, 247) << "600,001 elements are 4,688 weight blocks, 19 a chunk";
  const std::vector<float> start = arena.random_padded(1), gradient = arena.random_padded(5, -8, 8);
  arena.control.upload({{.loss_scale = 8}});
  arena.master.upload(start);
  arena.gradient.upload(gradient);
  arena.step(UpdateKind::lamb);
  const std::vector<float> master = arena.master.download();
  for (std::size_t span = 0; span < counts.size(); ++span) {
    const auto begin = static_cast<std::ptrdiff_t>(arena.offset(span)), end = begin + counts[span];
    const std::vector<double> g = unscaled({gradient.begin() + begin, gradient.begin() + end});
    std::vector<kernels::reference::WeightState<double>> states(g.size());
    for (std::size_t i = 0; i < g.size(); ++i) states[i].w = start[static_cast<std::size_t>(begin) + i];
    if (span != 1) kernels::reference::lamb_step<double>(group, 1, g, states);
    std::vector<double> w;
    for (const auto& state : states) w.push_back(state.w);
    expect_close({master.begin() + begin, master.begin() + end}, w, 16 * kUnit);
  }
}

// At a loss scale of 4 gradients of 0.5, -3 and 1 lie there as 2, -12 and 4.
TEST_P(UpdateTest, ValuesAreClippedAfterTheNorm) {
  const std::vector<std::vector<float>> gradient = {{2, -12, 4}};
  const auto moved = [&](float clip_norm, float clip_value, DType compute = DType::float16, bool narrow = false) {
    TestArena arena(device(), {{128, {.group = 0}}}, {{.learning_rate = 1, .beta1 = 0}}, compute);
    arena.control.upload({{.loss_scale = 4, .clip_norm = clip_norm}});
    arena.clip_value = clip_value;
    arena.gradient.upload(arena.padded(gradient));
    if (narrow) {
      const DeviceBuffer halves(device(), arena.padded(gradient), compute);
      copy_bytes(arena.gradient.as<float>(), halves.as<float>(), 128 * size_of(compute), device().stream());
      device().synchronize();
      arena.narrow.add({.begin = 0, .end = 1});
    }
    arena.step(UpdateKind::sgd);
    EXPECT_FLOAT_EQ(arena.control_now().gradient_norm, std::sqrt(10.25f)) << "before clipping";
    const std::vector<float> w = arena.master.download();
    return std::vector<float>{-w[0], -w[1], -w[2]};
  };
  EXPECT_EQ(moved(0, 0), (std::vector<float>{0.5f, -3, 1}));
  EXPECT_EQ(moved(0, 2), (std::vector<float>{0.5f, -2, 1}));
  EXPECT_EQ(moved(0, 0.75f), (std::vector<float>{0.5f, -0.75f, 0.75f}));
  EXPECT_EQ(moved(0, 4), (std::vector<float>{0.5f, -3, 1})) << "none is as large";
  const double half = 0.5;  // a norm of half the size, then values
  expect_close(moved(std::sqrt(10.25f) / 2, 1), std::vector<double>{0.5 * half, -1, half}, 8 * kUnit);
  for (const DType dtype : {DType::float16, DType::bfloat16})
    EXPECT_EQ(moved(0, 0.75f, dtype, true), (std::vector<float>{0.5f, -0.75f, 0.75f})) << "narrow gradients";
}

TEST_P(UpdateTest, EveryRuleReadsClippedValues) {
  for (const auto& [name, kind, slots, by_norm, decoupled] : kernels::kUpdateRules) {
    std::vector<std::vector<float>> ends;
    for (const bool by_kernel : {false, true}) {
      TestArena arena(device(), {{300, {.group = 0}}}, {{.learning_rate = 0.05f, .weight_decay = 0.1f}});
      arena.master.upload(arena.random_padded(1));
      std::vector<float> gradient = arena.random_padded(2);
      if (by_kernel)
        arena.clip_value = 0.5f;
      else
        for (float& g : gradient) g = std::clamp(g, -0.5f, 0.5f);
      arena.gradient.upload(gradient);
      arena.step(kind);
      ends.push_back(arena.master.download());
    }
    SCOPED_TRACE(name);
    expect_close(ends[1], ends[0], 4 * kUnit);
  }
}

TEST_P(UpdateTest, GroupsFrozenSpansAndCopies) {
  TestArena arena(device(),
                  {{200, {.group = 0, .compute_copy = 1}},
                   {70, {.group = 0, .frozen = 1, .compute_copy = 1}},
                   {128, {.group = 1, .compute_copy = 0}},
                   {1, {.group = 0, .compute_copy = 1}}},
                  {{.learning_rate = 0.5f, .beta1 = 0}, {.learning_rate = 2, .beta1 = 0}});
  const std::vector<float> start = arena.random_padded(1), gradient = arena.random_padded(5);
  arena.master.upload(start);
  arena.gradient.upload(gradient);
  arena.step(UpdateKind::sgd);
  const std::vector<float> master = arena.master.download(), copy = arena.compute.download();
  const std::vector<std::size_t> begin = {0, arena.offset(1), arena.offset(2), arena.offset(3), master.size()};
  const float rates[] = {0.5f, 0.0f, 2.0f, 0.5f};
  for (std::size_t s = 0; s < 4; ++s) {
    for (std::size_t i = begin[s]; i < begin[s + 1]; ++i) {
      ASSERT_EQ(master[i], start[i] - rates[s] * gradient[i]) << i;  // products by powers of two are exact
      if (s == 0 || s == 3) {
        ASSERT_EQ(copy[i], rounded(master[i], DType::float16)) << i;
      } else {
        ASSERT_TRUE(std::isnan(copy[i])) << "the copy of span " << s << " was written";
      }
    }
  }
}

/// A span whose group waits for two updates: it is no part of the norm until then, and then begins as if new.
TEST_P(UpdateTest, SpansFrozenForNowMoveLater) {
  const UpdateGroup group{.learning_rate = 0.05f, .beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-3f};
  TestArena arena(device(),
                  {{200, {.group = 0}}, {70, {.group = 1, .frozen = kernels::kFrozenForNow, .compute_copy = 1}}},
                  {group, group});
  const DeviceArray<std::int64_t> frozen(device(), {0, 2});
  arena.frozen_updates = frozen.data();
  const std::vector<float> start = arena.random_padded(1);
  std::vector<kernels::reference::WeightState<double>> states(start.size());
  for (std::size_t i = 0; i < start.size(); ++i) states[i].w = start[i];
  arena.master.upload(start);
  for (std::int64_t t = 1; t <= 4; ++t) {
    const std::vector<float> gradient = arena.random_padded(static_cast<std::uint64_t>(10 * t));
    arena.gradient.upload(gradient);
    arena.step(UpdateKind::adam);
    double sum = 0;
    for (std::size_t i = 0; i < start.size(); ++i) {
      const std::int64_t waits = i < arena.offset(1) ? 0 : 2;
      if (t <= waits) continue;
      sum += static_cast<double>(gradient[i]) * gradient[i];
      states[i] =
          kernels::reference::optimizer_step<double>(UpdateKind::adam, group, t - waits, gradient[i], states[i]);
    }
    EXPECT_NEAR(arena.control_now().gradient_norm, std::sqrt(sum), 1e-5) << "update " << t;
    if (t == 2) {
      const std::vector<float> waiting = arena.master.download(), moments = arena.moment1.download();
      for (std::size_t i = arena.offset(1); i < start.size(); ++i) ASSERT_EQ(waiting[i], start[i]);
      for (std::size_t i = arena.offset(1); i < start.size(); ++i) ASSERT_EQ(moments[i], 0.0f);
      EXPECT_TRUE(std::isnan(arena.compute.download()[arena.offset(1)])) << "the copy was written";
    }
  }
  std::vector<double> w;
  for (const auto& state : states) w.push_back(state.w);
  expect_close(arena.master.download(), w, 4 * (2 + 0.2 * 32) * kUnit);
}

TEST_P(UpdateTest, NothingMovesWhereNothingCameAndEpsilonIsZero) {
  TestArena arena(device(), {{130, {.group = 0, .compute_copy = 1}}}, {{.learning_rate = 0.1f, .epsilon = 0}});
  const std::vector<float> start = arena.random_padded(3);
  arena.master.upload(start);
  arena.step(UpdateKind::adam);
  EXPECT_EQ(arena.master.download(), start);
}

// The 10,000th update: beta2^t = 0.999^10000 = 4.5e-5 and beta1^t = 0, so the corrections are nearly 1.
TEST_P(UpdateTest, LateStepsAndCountsAbove32Bits) {
  for (const std::int64_t done : {std::int64_t{9999}, std::int64_t{1} << 33}) {
    const UpdateGroup group{.learning_rate = 0.1f};
    TestArena arena(device(), {{1, {.group = 0}}}, {group});
    arena.control.upload({{.updates = done}});
    arena.master.upload(arena.padded({{0.5f}}));
    arena.moment1.upload(arena.padded({{0.25f}}));
    arena.moment2.upload(arena.padded({{0.125f}}));
    arena.gradient.upload(arena.padded({{-0.75f}}));
    arena.step(UpdateKind::adam);
    const auto expected =
        kernels::reference::optimizer_step<double>(UpdateKind::adam, group, done + 1, -0.75, {0.5, 0.25, 0.125});
    expect_close({arena.master.download()[0]}, std::vector<double>{expected.w}, 4 * kUnit);
    EXPECT_EQ(arena.control_now().updates, done + 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, UpdateTest, ::testing::ValuesIn(test_devices()), device_test_name);

// Norm and finite check, clipping, skipped updates, loss scale and buffers.
class UpdateControlTest : public DeviceTest {
 protected:
  /// Statistics of `gradient` under `control`, in an arena of a trained, a frozen and again a trained span.
  UpdateControl statistics_of(const UpdateControl& control, const std::vector<std::vector<float>>& gradient) {
    TestArena arena(device(), spans(), {UpdateGroup{}});
    arena.control.upload({control});
    arena.gradient.upload(arena.padded(gradient));
    arena.begin();
    return arena.control_now();
  }
  static std::vector<TestSpan> spans() {
    return {{300, {.group = 0, .compute_copy = 1}}, {5, {.group = 0, .frozen = 1}}, {129, {.group = 0}}};
  }
};

TEST_P(UpdateControlTest, NormAndFactorByHand) {
  // Scaled by 2: gradients 3 and 4; the frozen 100 does not count. Norm 5, clipped to 1.
  const std::vector<std::vector<float>> gradient = {{6}, {100}, {8}};
  UpdateControl c = statistics_of({.loss_scale = 2}, gradient);
  EXPECT_EQ(c.found_nonfinite, 0);
  EXPECT_FLOAT_EQ(c.gradient_norm, 5);
  EXPECT_FLOAT_EQ(c.gradient_factor, 0.5f);
  c = statistics_of({.loss_scale = 2, .clip_norm = 1}, gradient);
  EXPECT_FLOAT_EQ(c.gradient_norm, 5);
  EXPECT_FLOAT_EQ(c.gradient_factor, 0.1f);
  c = statistics_of({.loss_scale = 2, .clip_norm = 5.5f}, gradient);
  EXPECT_FLOAT_EQ(c.gradient_factor, 0.5f);
  // All zeros: no division by the norm.
  c = statistics_of({.loss_scale = 4, .clip_norm = 1}, {{0}, {0}, {0}});
  EXPECT_EQ(c.gradient_norm, 0);
  EXPECT_EQ(c.gradient_factor, 0.25f);
}

TEST_P(UpdateControlTest, NormIsTheReference) {
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{127}, std::int64_t{70000}, std::int64_t{3000001}}) {
    TestArena arena(device(), {{count, {.group = 0}}}, {UpdateGroup{}});
    const std::vector<float> gradient = arena.random_padded(4);
    arena.gradient.upload(gradient);
    arena.begin();
    const double expected = kernels::reference::gradient_norm<double>(count, gradient.data());
    // Summed in double, rounded to float once.
    EXPECT_NEAR(arena.control_now().gradient_norm, expected, 1.01 * kUnit * expected) << count;
  }
}

TEST_P(UpdateControlTest, EveryNonFiniteElementIsFound) {
  const std::vector<std::pair<std::size_t, std::size_t>> places = {{0, 0}, {0, 127}, {0, 299}, {2, 0}, {2, 128}};
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    for (const auto& [span, element] : places) {
      std::vector<std::vector<float>> gradient = {random_values(300, 1), random_values(5, 2), random_values(129, 3)};
      gradient[span][element] = bad;
      EXPECT_EQ(statistics_of({.clip_norm = 1}, gradient).found_nonfinite, 1)
          << bad << " at " << span << ":" << element;
    }
    EXPECT_EQ(statistics_of({}, {{1}, {1, bad}, {1}}).found_nonfinite, 0) << "frozen spans do not count";
  }
  // Opposite infinities do not cancel.
  EXPECT_EQ(statistics_of({}, {{INFINITY, -INFINITY}, {}, {}}).found_nonfinite, 1);
}

TEST_P(UpdateControlTest, LargeGradientsAreFiniteThoughTheirSquaresAreNotInFloat) {
  const UpdateControl c =
      statistics_of({.loss_scale = 65536, .clip_norm = 1}, {{3e38f, 3e38f}, {}, {1e-30f, 3e38f, 3e38f}});
  EXPECT_EQ(c.found_nonfinite, 0);
  EXPECT_FLOAT_EQ(c.gradient_norm, 6e38 / 65536);
  EXPECT_FLOAT_EQ(c.gradient_factor, 1 / 6e38);
}

TEST_P(UpdateControlTest, ASkippedUpdateChangesNoBit) {
  for (const auto& [name, kind, slots, by_norm, decoupled] : kernels::kUpdateRules) {
    TestArena arena(device(), spans(), {{.learning_rate = 0.1f, .weight_decay = 0.1f}});
    arena.control.upload(
        {{.loss_scale = 1024, .growth_interval = 5, .finite_in_a_row = 4, .updates = 7, .skipped = 2}});
    arena.master.upload(arena.random_padded(1));
    arena.moment1.upload(arena.random_padded(4));
    arena.moment2.upload(arena.random_padded(7, 0, 1));
    std::vector<float> gradient = arena.random_padded(10);
    gradient[arena.offset(2) + 3] = INFINITY;
    arena.gradient.upload(gradient);
    const auto state = [&] {
      return std::vector{arena.master.download_bytes(), arena.moment1.download_bytes(), arena.moment2.download_bytes(),
                         arena.compute.download_bytes(), arena.gradient.download_bytes()};
    };
    const auto before = state();
    arena.step(kind);
    EXPECT_EQ(state(), before);
    const UpdateControl c = arena.control_now();
    EXPECT_EQ(c.updates, 7);
    EXPECT_EQ(c.skipped, 3);
    EXPECT_EQ(c.finite_in_a_row, 0);
    EXPECT_EQ(c.loss_scale, 512);
    arena.gradient.upload(arena.random_padded(20));
    arena.step(kind);
    EXPECT_NE(state(), before) << "the next finite update moves";
    EXPECT_EQ(arena.control_now().updates, 8);
  }
}

TEST_P(UpdateControlTest, EachUpdateWritesItsRow) {
  const DeviceArray<kernels::UpdateRow> rows(device(), std::vector<kernels::UpdateRow>(kernels::kMetricSlots));
  TestArena arena(device(), spans(), {{.learning_rate = 0.25f}, {.learning_rate = 0.5f}});
  arena.rows = rows.data();
  arena.control.upload({{.loss_scale = 2, .growth_interval = 1, .metric_slot = kernels::kMetricSlots - 1}});
  for (const float gradient : {6.0f, INFINITY, 8.0f}) {
    arena.gradient.upload(arena.padded({{gradient}, {100}, {}}));
    arena.step(UpdateKind::sgd);
  }
  const std::vector<kernels::UpdateRow> written = rows.download();
  const kernels::UpdateRow& first = written[kernels::kMetricSlots - 1];
  EXPECT_EQ(first.learning_rate, 0.25f) << "of group 0";
  EXPECT_FLOAT_EQ(first.gradient_norm, 3) << "unscaled";
  EXPECT_EQ(first.loss_scale, 2) << "the update's own, not the next one's";
  EXPECT_EQ(first.outcome, kernels::UpdateOutcome::done);
  EXPECT_EQ(written[0].outcome, kernels::UpdateOutcome::skipped) << "the ring goes round";
  EXPECT_EQ(written[0].loss_scale, 4);
  EXPECT_FLOAT_EQ(written[1].gradient_norm, 4);
  EXPECT_EQ(written[1].loss_scale, 2);
  EXPECT_EQ(written[2].learning_rate, 0) << "no update wrote there";
}

TEST_P(UpdateControlTest, UpdatesAfterTooManySkippedOnesChangeNothing) {
  const DeviceArray<kernels::UpdateRow> rows(device(), std::vector<kernels::UpdateRow>(kernels::kMetricSlots));
  TestArena arena(device(), spans(), {{.learning_rate = 0.25f}});
  arena.rows = rows.data();
  arena.halt_after = 2;
  arena.master.upload(arena.random_padded(1));
  arena.control.upload({{.loss_scale = 64, .growth_interval = 5, .updates = 3}});
  const auto run = [&](float gradient) {
    arena.gradient.upload(arena.padded({{gradient}, {}, {}}));
    arena.step(UpdateKind::adam);
    return arena.control_now();
  };
  (void)run(1);
  const std::vector<std::uint8_t> weights = arena.master.download_bytes();
  (void)run(NAN);
  const UpdateControl last = run(NAN);
  for (int i = 0; i < 3; ++i) {
    const UpdateControl later = run(1);
    EXPECT_EQ(later.updates, 4);
    EXPECT_EQ(later.skipped, 2) << "not counted";
    EXPECT_EQ(later.skipped_in_a_row, 2);
    EXPECT_EQ(later.loss_scale, last.loss_scale);
    EXPECT_EQ(later.metric_slot, 4 + i) << "the ring goes on";
  }
  EXPECT_EQ(arena.master.download_bytes(), weights);
  std::vector<kernels::UpdateOutcome> outcomes;
  for (const kernels::UpdateRow& row : rows.download()) outcomes.push_back(row.outcome);
  outcomes.resize(6);
  using enum kernels::UpdateOutcome;
  EXPECT_EQ(outcomes, (std::vector{done, skipped, skipped, halted, halted, halted}));
  arena.halt_after = 0;
  EXPECT_EQ(run(1).updates, 5);
  EXPECT_NE(arena.master.download_bytes(), weights);
}

TEST_P(UpdateControlTest, LossScaleGrowsAndBacksOff) {
  TestArena arena(device(), spans(), {UpdateGroup{}});
  const auto run = [&](float gradient, int times) {
    arena.gradient.upload(arena.padded({{gradient}, {}, {}}));
    for (int i = 0; i < times; ++i) arena.step(UpdateKind::adam);
    return arena.control_now();
  };
  arena.control.upload({{.loss_scale = 4, .growth_interval = 3}});
  EXPECT_EQ(run(1, 2).loss_scale, 4);
  EXPECT_EQ(run(1, 1).loss_scale, 8);
  EXPECT_EQ(run(1, 2).finite_in_a_row, 2);
  EXPECT_EQ(run(NAN, 1).loss_scale, 4);
  EXPECT_EQ(run(1, 2).loss_scale, 4);
  EXPECT_EQ(run(1, 1).loss_scale, 8);
  EXPECT_EQ(run(NAN, 10).loss_scale, 1) << "not below 1";
  arena.control.upload({{.loss_scale = 0x1p23f, .growth_interval = 1}});
  EXPECT_EQ(run(1, 1).loss_scale, 0x1p24f);
  EXPECT_EQ(run(1, 1).loss_scale, 0x1p24f) << "not above 2^24";
  arena.control.upload({{.loss_scale = 16, .growth_interval = 0}});
  EXPECT_EQ(run(1, 5).loss_scale, 16) << "constant";
  const UpdateControl constant = run(NAN, 2);
  EXPECT_EQ(constant.loss_scale, 16);
  EXPECT_EQ(constant.skipped, 2);
  EXPECT_EQ(constant.updates, 5);
}

TEST_P(UpdateControlTest, BuffersAdvanceOrGoBack) {
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{300001}}) {
    for (const bool finite : {true, false}) {
      const std::vector<float> p = random_values(count, 1), c = random_values(count, 2);
      const DeviceBuffer next(device(), p, DType::float32), current(device(), c, DType::float32);
      TestArena arena(device(), spans(), {UpdateGroup{}});
      arena.gradient.upload(arena.padded({{finite ? 1 : INFINITY}, {}, {}}));
      arena.step(UpdateKind::sgd, {count, next.as<float>(), current.as<float>()});
      EXPECT_EQ(next.download(), finite ? p : c);
      EXPECT_EQ(current.download(), finite ? p : c);
      EXPECT_EQ(arena.control_now().updates, finite ? 1 : 0);
    }
  }
}

// A program's own rule has moved `master`.
TEST_P(UpdateControlTest, PublishedWeightsAreCopiesOfTheMasters) {
  for (const bool finite : {true, false}) {
    const DeviceBuffer next(device(), {1, 2}, DType::float32), current(device(), {3, 4}, DType::float32);
    TestArena arena(device(), spans(), {UpdateGroup{}});
    const std::vector<float> master = arena.random_padded(1);
    arena.master.upload(master);
    arena.gradient.upload(arena.padded({{finite ? 1 : INFINITY}, {}, {}}));
    arena.begin();
    BANTAM_KERNEL(device().exec(), publish_weights, arena.arena(), {2, next.as<float>(), current.as<float>()},
                  arena.control.data());
    EXPECT_EQ(current.download(), finite ? (std::vector<float>{1, 2}) : (std::vector<float>{3, 4}));
    EXPECT_EQ(arena.master.download(), master);
    const std::vector<float> copy = arena.compute.download();
    for (std::size_t i = 0; i < copy.size(); ++i) {
      if (finite && i < arena.offset(1))
        ASSERT_EQ(copy[i], rounded(master[i], DType::float16)) << i;
      else
        ASSERT_TRUE(std::isnan(copy[i])) << i << " has no copy, or the update was skipped";
    }
  }
}

TEST_P(UpdateControlTest, AnArenaWithoutParametersStillPublishesBuffers) {
  const DeviceBuffer next(device(), {1, 2}, DType::float32), current(device(), {3, 4}, DType::float32);
  TestArena arena(device(), {}, {UpdateGroup{}});
  arena.step(UpdateKind::adam, {2, next.as<float>(), current.as<float>()});
  EXPECT_EQ(current.download(), (std::vector<float>{1, 2}));
  EXPECT_EQ(arena.control_now().updates, 1);
}

TEST_P(UpdateControlTest, TooManyGroupsAreRefused) {
  TestArena arena(device(), spans(), std::vector<UpdateGroup>(kernels::kMostUpdateGroups + 1));
  arena.begin();
  EXPECT_THROW(arena.apply(UpdateKind::adam), Error);
}

INSTANTIATE_TEST_SUITE_P(Devices, UpdateControlTest, ::testing::ValuesIn(test_devices()), device_test_name);

TEST(UpdateCpu, BitsDoNotDependOnThreads) {
  for (const auto& [name, kind, slots, by_norm, decoupled] : kernels::kUpdateRules) {
    std::vector<std::vector<std::uint32_t>> results;
    for (const int threads : {1, 2, 3}) {
      KernelDevice device(Device::cpu(), threads);
      TestArena arena(device, {{100001, {.group = 0, .compute_copy = 1}}},
                      {{.learning_rate = 0.1f, .weight_decay = 0.1f}});
      arena.control.upload({{.clip_norm = 0.5f}});
      arena.master.upload(arena.random_padded(1));
      arena.gradient.upload(arena.random_padded(2));
      arena.step(kind);
      results.push_back(bits_of(arena.master.download()));
      results.back().push_back(bits_of({arena.control_now().gradient_norm})[0]);
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
}

}  // namespace
}  // namespace bantam::testing::update_test
