// A case is planned with its own batch, precision and recompute, and the configuration's rest.
#include "bantam/run/config/step_case.h"

#include "tests/run/run_fixture.h"

namespace bantam::run::step_case_test {
namespace {

using StepCaseTest = RunTest;

TEST_F(StepCaseTest, TakesTheRestFromTheConfiguration) {
  const RunConfig config = tiny({"train.accumulate=3", "fusion=off"});
  const StepCase row{.batch = 5, .precision = {PrecisionKind::mixed_bfloat16}, .recompute = parse_recompute("all")};
  const StepPlanOptions step = step_plan_options(config, row);
  EXPECT_EQ(step.batch, 5);
  EXPECT_EQ(step.accumulate, 1) << "benches run one micro-batch an update";
  EXPECT_EQ(train_plan_options(config, row).accumulate, 3);
  EXPECT_EQ(step.model.precision.kind, PrecisionKind::mixed_bfloat16);
  EXPECT_EQ(to_string(step.model.recompute), "all");
  EXPECT_FALSE(step.model.fusion);
  EXPECT_EQ(step.model.seed, 7u);
  EXPECT_FLOAT_EQ(step.optimizer.rule->values().learning_rate, 0.05f);
}

}  // namespace
}  // namespace bantam::run::step_case_test
