// Measured steps: what they take is what is planned, and time is time.
#include "bantam/run/bench/measure.h"

#include <string>
#include <vector>

#include "bantam/base/error.h"
#include "tests/engine/comm/on_ranks.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::measure_test {
namespace {

using MeasureTest = RunTest;

StepCase step_of(const RunConfig& config) { return {.batch = 8, .precision = config.precision}; }

TEST_F(MeasureTest, MemoryIsAsPlanned) {
  const RunConfig config = tiny();
  for (const StepMode mode : {StepMode::eager, StepMode::planned}) {
    StepCase step = step_of(config);
    step.mode = mode;
    StepSession session(config, step, Device::cpu(), 1);
    EXPECT_EQ(session.run(3), 3);
    session.wait();
    const StepPlan plan = plan_step(config.model.graph, step_plan_options(config, step));
    EXPECT_EQ(session.memory().peak_bytes, plan.peak_bytes);
  }
}

TEST_F(MeasureTest, TimesAWindowAtLeast) {
  const RunConfig config = tiny();
  const StepMeasurement measured = measure_step(config, step_of(config), 1, 0.01);
  EXPECT_GE(measured.windows, 3);
  EXPECT_GT(measured.ms_per_step, 0);
  EXPECT_NEAR(measured.images_per_s * measured.ms_per_step, 8e3, 1);
  EXPECT_EQ(measured.kernels, 0) << "nothing is captured on a CPU";
  EXPECT_EQ(measured.parameters, 4 * 3 * 3 * 3 + 4 + 2 * 4 + 4 * 10 + 10);
}

// CPUs stand in for GPUs, whose exchange alone they do not time.
TEST_F(MeasureTest, RanksMeasureTogether) {
  const RunConfig config = tiny({"train.replicas=8"});
  std::vector<RanksMeasurement> measured(2);
  const std::vector<std::string> thrown = testing::on_ranks(2, [&](Communicator& link, int rank) {
    measured[static_cast<std::size_t>(rank)] =
        measure_step_on_ranks(config, step_of(config), 1, rank == 0 ? 0.02 : 10, {.link = &link});
  });
  EXPECT_EQ(thrown, testing::nothing_thrown(2));
  EXPECT_GT(measured[0].step.ms_per_step, 0);
  EXPECT_EQ(measured[1].step.ms_per_step, measured[0].step.ms_per_step) << "the slowest rank's, in as many windows";
  EXPECT_EQ(measured[1].step.windows, measured[0].step.windows);
  EXPECT_NEAR(measured[0].step.images_per_s * measured[0].step.ms_per_step, 2 * 8e3, 1) << "one replica each";
  EXPECT_EQ(measured[0].hidden(), std::nullopt);
  for (const std::string& error : testing::on_ranks(3, [&](Communicator&link, int) {
         (void)measure_step_on_ranks(config, step_of(config), 1, 0.02, {.link = &link});
       }))
    EXPECT_NE(error.find("a power of two"), std::string::npos) << error;
}

TEST_F(MeasureTest, TheHiddenShareIsOfTheExchange) {
  const auto hidden = [](double exchange, std::optional<double> wait) {
    return RanksMeasurement{.exchange_ms = exchange, .wait_ms = wait}.hidden();
  };
  ASSERT_TRUE(hidden(4, 1));
  EXPECT_DOUBLE_EQ(*hidden(4, 1), 0.75);
  EXPECT_DOUBLE_EQ(*hidden(4, 0), 1);
  EXPECT_DOUBLE_EQ(*hidden(4, 5), 0) << "the step waits for more than the exchange";
  EXPECT_EQ(hidden(4, std::nullopt), std::nullopt);
  EXPECT_EQ(hidden(0, 0.1), std::nullopt);
}

TEST_F(MeasureTest, RoundsOfResidentBatches) {
  const RunConfig config = tiny();
  StepSession session(config, step_of(config), Device::cpu(), 1);
  const std::uint64_t one = session.memory().in_use_bytes;
  session.add_batches(3);
  const std::uint64_t three = session.memory().in_use_bytes;
  EXPECT_GE(three - one, 2u * 8 * 32 * 32 * 3 * sizeof(float));
  session.add_batches(2);
  EXPECT_EQ(session.memory().in_use_bytes, three) << "they are there";
  session.update(3);
  session.wait();
}

TEST_F(MeasureTest, WhatDoesNotFitIsRefused) {
  const RunConfig config = tiny({"memory.limits={cpu: 100KiB}"});
  EXPECT_THROW((void)measure_step(config, step_of(config), 1, 0.01), OutOfMemory);
}

TEST_F(MeasureTest, ExtraIsAgainstTheStepThatFits) {
  const RunConfig config = tiny();
  StepCase step = step_of(config);
  const StepMeasurement slow{.ms_per_step = 1e9};
  const auto extra = measure_extra(config, step, slow, 1, 0.01);
  ASSERT_TRUE(extra);
  EXPECT_GT(*extra, 1e3);
  EXPECT_FALSE(measure_extra(tiny({"memory.limits={cpu: 100KiB}"}), step, slow, 1, 0.01));
}

}  // namespace
}  // namespace bantam::run::measure_test
