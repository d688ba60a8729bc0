// What is left open is decided once, and nothing else changes.
#include "bantam/run/fit/settle.h"

#include "bantam/base/error.h"
#include "tests/run/run_fixture.h"

namespace bantam::run {
namespace {

using SettleTest = RunTest;

TEST_F(SettleTest, LeavesWhatIsGiven) {
  const RunConfig config = tiny();
  const Settled settled = settle(config);
  EXPECT_FALSE(settled.batch || settled.recompute);
  EXPECT_TRUE(settled.messages.empty() && settled.warnings.empty());
  const RunConfig closed = with_settled(config, settled);
  EXPECT_EQ(closed.data->pipeline.batch_size, 16);
  EXPECT_EQ(closed.document.resolved_yaml(), tiny({"device=cpu", "precision=float32"}).document.resolved_yaml());
}

TEST_F(SettleTest, WarnsOfFewUpdates) {
  const Settled settled = settle(tiny({"data.pipeline.batch={size: auto, max: 48}", "memory.limits={cpu: 64MiB}"}));
  ASSERT_TRUE(settled.batch);
  EXPECT_EQ(settled.batch->batch, 48);
  ASSERT_EQ(settled.warnings.size(), 1u);
  EXPECT_NE(settled.warnings[0].find("only 2 updates an epoch"), std::string::npos) << settled.warnings[0];
}

TEST_F(SettleTest, WarnsOfProbabilitiesWhereTheLossReadsLogits) {
  const auto warnings = [](const std::string& end, const std::vector<std::string>& more = {}) {
    std::vector<std::string> overrides = more;
    overrides.push_back("model.layers=[global_average_pool, " + end + "]");
    return settle(tiny(overrides)).warnings;
  };
  EXPECT_EQ(warnings("{dense: {units: 10}}, softmax"),
            std::vector<std::string>{"the model ends with a softmax, and the loss softmax_cross_entropy applies one "
                                     "itself: leave the model's out"});
  EXPECT_TRUE(warnings("{dense: {units: 10, activation: sigmoid}}").empty());
  const std::vector<std::string> soft = {"data.labels=soft", "train.loss=binary_cross_entropy"};
  for (const char* end : {"{dense: {units: 10, activation: sigmoid}}", "{dense: {units: 10}}, sigmoid"})
    EXPECT_EQ(warnings(end, soft),
              std::vector<std::string>{"the model ends with a sigmoid, and the loss binary_cross_entropy applies one "
                                       "itself: leave the model's out"});
  EXPECT_TRUE(warnings("{dense: {units: 10}}, softmax", soft).empty());
}

TEST_F(SettleTest, WarnsOfPixelsThatAreNotScaled) {
  const auto warnings = [](const std::string& normalize) {
    return settle(tiny({"data.pipeline.normalize=" + normalize})).warnings;
  };
  const std::vector<std::string> found = warnings("{mean: [0.5, 0.4, 0.45], std: [0.25, 0.2, 0.3]}");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].starts_with("pixels reach the network as numbers up to 1273: ")) << found[0];
  EXPECT_EQ(warnings("{}").size(), 1u) << "0 to 255";
  EXPECT_TRUE(warnings("{scale: 0.0039, mean: [0.5, 0.4, 0.45], std: [0.25, 0.2, 0.3]}").empty());
  EXPECT_TRUE(warnings("{mean: 127.5, std: 127.5}").empty()) << "the same by other means";
}

TEST_F(SettleTest, WarnsOfWhatTheRunDoesNotReach) {  // its 12 updates
  const auto warnings = [](const std::vector<std::string>& overrides) { return settle(tiny(overrides)).warnings; };
  EXPECT_EQ(warnings({"train.prune={begin: 12, end: 20}"}),
            std::vector<std::string>{"train.prune.begin: the run has only 12 updates, not 12: nothing is pruned"});
  EXPECT_EQ(warnings({"train.prune={begin: 2, end: 20}"}),
            std::vector<std::string>{
                "train.prune.end: the run has only 12 updates, not 20: the final sparsity is not reached"});
  EXPECT_EQ(
      warnings({"train.ema={every: 13}"}),
      std::vector<std::string>{"train.ema.every: the run has only 12 updates, not 13: weights are never averaged"});
  EXPECT_EQ(warnings({"train.groups=[{match: \"conv*\", freeze: true, until: 2epochs}]"}),
            std::vector<std::string>{
                "train.groups, until of \"conv*\": the run has only 12 updates, not 12: they stay frozen to its end"});
  EXPECT_TRUE(warnings({"train.prune={begin: 11, end: 12}", "train.ema={every: 12}",
                        "train.groups=[{match: \"conv*\", freeze: true, until: 11}]"})
                  .empty());
}

TEST_F(SettleTest, ABudgetThatCannotBeMetIsRefused) {
  EXPECT_THROW((void)settle(tiny({"memory.budget=1KiB"})), OutOfMemory);
  EXPECT_NO_THROW((void)settle(tiny({"memory.budget=1KiB", "recompute=none"}))) << "the user has chosen";
  EXPECT_THROW((void)settle(tiny({"memory.limits={cpu: 1KiB}", "data.pipeline.batch.size=auto"})), OutOfMemory);
}

}  // namespace
}  // namespace bantam::run
