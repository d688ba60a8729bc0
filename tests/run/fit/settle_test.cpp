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

TEST_F(SettleTest, ABudgetThatCannotBeMetIsRefused) {
  EXPECT_THROW((void)settle(tiny({"memory.budget=1KiB"})), OutOfMemory);
  EXPECT_NO_THROW((void)settle(tiny({"memory.budget=1KiB", "recompute=none"}))) << "the user has chosen";
  EXPECT_THROW((void)settle(tiny({"memory.limits={cpu: 1KiB}", "data.pipeline.batch.size=auto"})), OutOfMemory);
}

}  // namespace
}  // namespace bantam::run
