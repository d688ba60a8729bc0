// Schedules against torch.optim.lr_scheduler (tests/oracles/schedules.py), where a configuration may name them, and
// what of them a checkpoint has.
#include <limits>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/engine/metrics/metric.h"
#include "bantam/engine/optimizers/optimizer.h"
#include "bantam/engine/optimizers/plateau.h"
#include "tests/base/config_error.h"
#include "tests/engine/optimizers/schedule_values.h"

namespace bantam::schedules_test {
namespace {

constexpr ScheduleFacts kRun{.learning_rate = 0.1f, .updates = 40, .updates_per_epoch = 8};

ConfigMap section(const std::string& yaml) { return ConfigDocument::parse(yaml, "own.yaml").map(); }

Schedule schedule(const std::string& yaml, const ScheduleFacts& facts = kRun) {
  ConfigMap map = section("schedule: " + yaml);
  return read_schedule(map)(facts);
}

#define EXPECT_SAYS(call, part)                                               \
  do {                                                                        \
    const std::string said = testing::config_error_of([&] { (void)(call); }); \
    EXPECT_NE(said.find(part), std::string::npos) << said << "\n" << (part);  \
  } while (false)

/// Values are a float32 of what torch has in float64: 1e-5 relative is a hundred roundings, and zeros are 1e-9 of the
/// peak.
template <class Values>
void expect_values(const std::string& yaml, const Values& wanted) {
  const Schedule made = schedule(yaml);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(made(testing::kAsked[i]), wanted[i], 1e-5 * wanted[i] + 1e-10)
        << yaml << " at update " << testing::kAsked[i];
}

TEST(Schedules, HaveTheValuesOfTorch) {
  using namespace testing;
  expect_values("constant", kConstant);
  expect_values("{linear: {final: 0.01}}", kLinear);
  expect_values("{cosine: {final: 0.001, over: 5epochs}}", kCosine);
  expect_values("{cosine: {warmup: 1epoch, warmup_from: 0.001}}", kWarmCosine);
  expect_values("{polynomial: {power: 0.9, over: 3epochs}}", kPolynomial);
  expect_values("{step: {every: 12, factor: 0.3}}", kStep);
  expect_values("{multi_step: {at: [1epoch, 20, 4epochs], factor: 0.5}}", kMultiStep);
  expect_values("{exponential: {factor: 0.95, every: 1update}}", kExponential);
  expect_values("{exponential: {factor: 0.95, every: 1, warmup: 4, warmup_from: 0.01}}", kWarmExponential);
  expect_values("{inverse_sqrt: {warmup: 9}}", kInverseSqrt);
  expect_values("one_cycle", kOneCycle);
  expect_values("{one_cycle: {rise: 0.4, anneal: linear, start: 0.01, final: 0.0001}}", kOneCycleLinear);
  expect_values("{piecewise: {points: {0: 0, 1epoch: 1, 4epochs: 0}}}", kPiecewise);
}

TEST(Schedules, OfMomentumRunTheOtherWay) {
  ScheduleFacts facts = kRun;
  facts.learning_rate = 0.85f;
  const Schedule momentum = schedule("{one_cycle: {start: 0.95, final: 0.95}}", facts);
  for (std::size_t i = 0; i < testing::kAsked.size(); ++i)
    EXPECT_NEAR(momentum(testing::kAsked[i]), testing::kOneCycleMomentum[i], 1e-5);
}

TEST(Schedules, StayAtTheirEnds) {
  EXPECT_FLOAT_EQ(schedule("{cosine: {final: 0.01}}")(1'000'000), 0.01f);
  EXPECT_FLOAT_EQ(schedule("{piecewise: {points: {8: 0.5, 16: 0.25}}}")(0), 0.05f);
  EXPECT_FLOAT_EQ(schedule("{piecewise: {points: {8: 0.5, 16: 0.25}}}")(900), 0.025f);
  EXPECT_FLOAT_EQ(schedule("{piecewise: {points: {0: 1, 16: 0.25}, between: constant}}")(15), 0.1f);
  EXPECT_FLOAT_EQ(schedule("{piecewise: {points: {0: 1, 16: 0.25}, between: constant}}")(16), 0.025f);
  const ScheduleFacts short_run{.learning_rate = 0.1f, .updates = 4, .updates_per_epoch = 4};
  EXPECT_FLOAT_EQ(schedule("{cosine: {warmup: 2epochs}}", short_run)(4), 0.05f) << "all of it is warm-up";
}

TEST(Schedules, OnPlateauFollowsEvaluations) {
  const std::string text =
      "{on_plateau: {factor: 0.5, patience: 1, threshold: 0.001, cooldown: 1, final: 0.02, warmup: 4}}";
  Schedule rate = schedule(text);
  ASSERT_NE(rate.evaluated(), nullptr);
  EXPECT_EQ(rate.evaluated()->metric(), "loss");
  for (std::size_t i = 0; i < testing::kLosses.size(); ++i) {
    rate.evaluated()->evaluated({.loss = testing::kLosses[i], .samples = 1});
    EXPECT_NEAR(rate(8), testing::kOnPlateau[i], 1e-7) << "after evaluation " << i + 1;
    EXPECT_NEAR(rate(2), testing::kOnPlateau[i] / 2, 1e-7) << "in the warm-up";
    // As from a checkpoint: the rest is the same.
    const std::vector<double> saved = rate.evaluated()->state();
    const Schedule resumed = schedule(text);
    resumed.evaluated()->set_state(saved);
    EXPECT_EQ(resumed(8), rate(8));
    EXPECT_EQ(resumed.evaluated()->state(), saved);
    rate = resumed;
  }
  EXPECT_THROW(rate.evaluated()->set_state({1.0, 2.0}), DataError);
  EXPECT_THROW(rate.evaluated()->set_state({0.1, 2.0, 0.0, 0.0, -0.1}), DataError);
}

/// As a checkpoint of another peak, where --accept-changes goes on.
TEST(Schedules, OnPlateauKeepsItsShareOfAnotherPeak) {
  const PlateauOptions options{.factor = 0.5, .patience = 0, .final = 3e-5};
  Plateau was(options, 1e-3);
  Plateau same(options, 1e-3), lower(options, 1e-4), least(options, 4e-5);
  lower.set_state(was.state());
  EXPECT_EQ(lower.value(), 1e-4);
  for (int i = 0; i < 2; ++i) was.evaluated({.loss = 1.0, .samples = 1});  // the first is an improvement
  ASSERT_EQ(was.value(), 5e-4);
  lower.set_state(was.state());
  EXPECT_DOUBLE_EQ(lower.value(), 5e-5);
  EXPECT_EQ(lower.state().back(), 1e-4) << "of its own peak from now on";
  least.set_state(was.state());
  EXPECT_EQ(least.value(), 3e-5) << "not below final";
  same.set_state(was.state());
  EXPECT_EQ(same.state(), was.state());
  std::vector<double> older = was.state();
  older.pop_back();
  lower.set_state(older);
  EXPECT_EQ(lower.value(), 5e-4) << "nothing is known of its peak";
}

TEST(Schedules, LargerIsBetterOfWhatIsNoLoss) {
  const Schedule rate = schedule("{on_plateau: {metric: accuracy, patience: 0, threshold: 0}}");
  for (const double accuracy : {0.1, 0.2, 0.3}) rate.evaluated()->evaluated({.accuracy = accuracy, .samples = 1});
  EXPECT_FLOAT_EQ(rate(0), 0.1f);
  rate.evaluated()->evaluated({.accuracy = 0.3, .samples = 1});
  EXPECT_FLOAT_EQ(rate(0), 0.01f);
}

OptimizerOptions optimizer_of(const std::string& yaml) {
  ConfigMap map = section("optimizer: " + yaml);
  return read_optimizer(map);
}

TEST(Schedules, StandInAnOptimizersBlock) {
  const OptimizerOptions sgd = optimizer_of(
      "{sgd: {learning_rate: {schedule: cosine, peak: 0.1, warmup: 1epoch, warmup_from: 0.001}, momentum: {schedule: "
      "one_cycle, peak: 0.85, start: 0.95, final: 0.95}, weight_decay: {schedule: linear, peak: 0.2, final: 0.1}}}");
  EXPECT_EQ(sgd.rule->values(), (UpdateValues{0.1f, 0.2f, 0.85f}));
  const UpdateSchedules all = schedules_of(sgd, kRun);
  EXPECT_NEAR(all.learning_rate(9), testing::kWarmCosine[6], 1e-6);
  EXPECT_NEAR(all.momentum(9), testing::kOneCycleMomentum[6], 1e-6);
  EXPECT_FLOAT_EQ(all.weight_decay(20), 0.15f);
  const OptimizerOptions adam = optimizer_of("{adam: {learning_rate: {schedule: linear}, beta1: 0.8}}");
  EXPECT_FLOAT_EQ(adam.rule->values().learning_rate, 0.001f) << "the default is the peak";
  EXPECT_FLOAT_EQ(schedules_of(adam, kRun).learning_rate(20), 0.0005f);
  EXPECT_FALSE(schedules_of(adam, kRun).momentum) << "without a schedule the optimizer's own";
  EXPECT_EQ(optimizer_of("{sgd: {momentum: {schedule: linear, peak: 0, final: 0.9}}}").rule->slots(), 1);
}

TEST(Schedules, ErrorsNameThePlace) {
  EXPECT_SAYS(optimizer_of("{sgd: {learning_rate: {schedule: cosin}}}"),
              "unknown schedule 'cosin'; did you mean 'cosine'?");
  EXPECT_SAYS(optimizer_of("{sgd: {learning_rate: {schedule: cosine, warmup: 10min}}}"), "own.yaml:1:");
  EXPECT_SAYS(optimizer_of("{sgd: {learning_rate: {schedule: cosine, finale: 1}}}"), "did you mean 'final'?");
  EXPECT_SAYS(optimizer_of("{sgd: {learning_rate: {peak: 0.1}}}"), "missing key 'schedule'");
  EXPECT_SAYS(optimizer_of("{sgd: {momentum: {schedule: linear, peak: 1.5}}}"), "expected a number in [0, 1)");
  EXPECT_SAYS(schedule("{step: {factor: 0.5}}"), "missing key 'every'");
  EXPECT_SAYS(schedule("{piecewise: {points: {1epoch: 1, 4: 0}}}"), "times of its points must rise");
  EXPECT_SAYS(schedule("{piecewise: {points: {1h: 1}}}"), "expected updates or epochs");
  EXPECT_SAYS(schedule("{piecewise: {points: {soon: 1}}}"), "own.yaml:1:");
}

}  // namespace
}  // namespace bantam::schedules_test
