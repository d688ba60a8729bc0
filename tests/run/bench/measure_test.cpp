// Measured steps: what they take is what is planned, and time is time.
#include "bantam/run/bench/measure.h"

#include "bantam/base/error.h"
#include "tests/run/run_fixture.h"

namespace bantam::run {
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
}  // namespace bantam::run
