// Rows of a grid: their order, their defaults, and what is chosen.
#include "bantam/run/fit/step_grid.h"

#include "bantam/base/error.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::step_grid_test {
namespace {

using StepGridTest = RunTest;

TEST_F(StepGridTest, DefaultsAreTheConfigurations) {
  const auto cases = step_cases(tiny({"recompute=cheap"}), {}, 0);
  ASSERT_EQ(cases.size(), 1u);
  EXPECT_EQ(cases[0].batch, 16);
  EXPECT_EQ(to_string(cases[0].recompute), "cheap");
  EXPECT_EQ(cases[0].mode, StepMode::planned);
  EXPECT_FALSE(cases[0].predicted_extra);
}

TEST_F(StepGridTest, VariesTheLastFastest) {
  const auto cases = step_cases(tiny(),
                                {.precisions = {{PrecisionKind::float32}, {PrecisionKind::mixed_bfloat16}},
                                 .recomputes = {parse_recompute("none"), parse_recompute("all")},
                                 .batches = {8, 16},
                                 .modes = {StepMode::eager, StepMode::planned}},
                                0);
  ASSERT_EQ(cases.size(), 16u);
  EXPECT_EQ(cases[1].mode, StepMode::planned);
  EXPECT_EQ(cases[2].batch, 16);
  EXPECT_EQ(to_string(cases[4].recompute), "all");
  EXPECT_EQ(cases[8].precision.kind, PrecisionKind::mixed_bfloat16);
}

TEST_F(StepGridTest, BytesLetThePolicyBeChosen) {
  std::string layers = "model.layers=[conv2d: {filters: 8, kernel: 3, padding: same}";
  for (const char* name : {"a", "b", "c", "d"})
    layers += std::string(", block: {name: ") + name +
              ", body: [conv2d: {filters: 8, kernel: 3, padding: same}, relu, conv2d: {filters: 8, kernel: 3, padding: "
              "same}, relu]}";
  const RunConfig config = tiny({layers + ", global_average_pool, dense: {units: 10}]"});
  const auto pool = [&](const char* policy) {
    const StepCase step{16, config.precision, parse_recompute(policy)};
    return plan_step(config.model.graph, train_plan_options(config, step)).pool_bytes;
  };
  const std::uint64_t none = pool("none"), all = pool("all");
  ASSERT_LT(all, none);
  const auto roomy = step_cases(config, {}, 2 * none);
  EXPECT_EQ(to_string(roomy.at(0).recompute), "none");
  EXPECT_FALSE(roomy[0].predicted_extra) << "nothing is recomputed";
  const auto tight = step_cases(config, {}, (all + none) / 2);
  EXPECT_NE(to_string(tight.at(0).recompute), "none");
  EXPECT_TRUE(tight[0].predicted_extra);
  EXPECT_THROW((void)step_cases(config, {.recomputes = {std::nullopt}}, 0), ConfigError);
}

TEST_F(StepGridTest, RefusesWhatTrainRefuses) {
  EXPECT_THROW((void)step_cases(tiny({"model.input=[16, 16, 3]"}), {}, 0), ConfigError);
}

}  // namespace
}  // namespace bantam::run::step_grid_test
