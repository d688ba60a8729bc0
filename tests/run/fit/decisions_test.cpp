// Open values are decided once, and nothing else changes.
#include "bantam/run/fit/decisions.h"

#include <set>
#include <string_view>
#include <vector>

#include "bantam/base/error.h"
#include "bantam/run/fit/fitting.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::decisions_test {
namespace {

class DecisionsTest : public RunTest {
 protected:
  static RunConfig decided_alone(const RunConfig& config, DecisionLog& log) {
    return decide(config, measured_target(config), for_step | for_run | for_rank, log);
  }
};

TEST_F(DecisionsTest, LeavesWhatIsGiven) {
  DecisionLog log;
  const RunConfig decided = decided_alone(tiny(), log);
  EXPECT_FALSE(decided.recompute_given);
  EXPECT_TRUE(log.messages.empty() && log.warnings.empty());
  EXPECT_EQ(decided.data->pipeline.batch_size, 16);
  EXPECT_EQ(decided.document.resolved_yaml(), tiny({"device=cpu", "precision=float32"}).document.resolved_yaml());
}

TEST_F(DecisionsTest, EveryRowHasAKeyOfItsOwn) {
  std::set<std::string_view> keys;
  for (const Decision& decision : decisions()) {
    EXPECT_TRUE(keys.insert(decision.key).second) << decision.key;
    EXPECT_TRUE(decision.is_open != nullptr && decision.decide != nullptr) << decision.key;
  }
}

TEST_F(DecisionsTest, OnlyTheScopesThatAreAskedForAreDecided) {
  const RunConfig open = tiny({"data.pipeline.batch={size: auto, max: 48}", "memory.limits={cpu: 64MiB}"});
  DecisionLog log;
  EXPECT_TRUE(decide(open, measured_target(open), for_run, log).data->pipeline.batch_size_is_auto);
  const RunConfig step = decide(open, measured_target(open), for_step, log);
  EXPECT_EQ(step.data->pipeline.batch_size, 48);
  EXPECT_EQ(step.document.resolved_yaml().find("device: cpu"), open.document.resolved_yaml().find("device: cpu"));
  const RunConfig given = decide_step(open, measured_target(open), std::vector<std::int64_t>{7}, log);
  EXPECT_EQ(given.data->pipeline.batch_size, 7) << "a batch size that is named needs no decision";
}

TEST_F(DecisionsTest, ABudgetThatIsOpenIsWhatThereIs) {
  DecisionLog log;
  const RunConfig limited = tiny({"memory={budget: auto, limits: {cpu: 64.5MiB}}"});
  EXPECT_EQ(limited.memory.budget, 0u);
  const RunConfig decided = decided_alone(limited, log);
  EXPECT_EQ(decided.memory.budget, 64u << 20) << "in whole MiB";
  EXPECT_NE(decided.document.resolved_yaml().find("budget: 64MiB"), std::string::npos);
  EXPECT_EQ(log.messages, std::vector<std::string>{"budget:      64.0 MiB"});
  EXPECT_EQ(decided_alone(decided, log).memory.budget, decided.memory.budget) << "values that are decided stay";
  const RunConfig free = decided_alone(tiny({"memory.budget=auto"}), log);
  EXPECT_GT(free.memory.budget, 0u);
  EXPECT_LE(free.memory.budget, free_pool_bytes(free) + (64u << 20)) << "give or take what others free meanwhile";
  // On a card that is not here, its pool.
  const RunConfig elsewhere = tiny({"device=cuda:0", "memory.budget=auto"});
  const PlanTarget card = plan_target(elsewhere, find_device_profile("h200"));
  const std::uint64_t pool = plan_fit(elsewhere.memory, card).pool;
  EXPECT_EQ(decide(elsewhere, card, for_step, log).memory.budget, pool >> 20 << 20);
}

TEST_F(DecisionsTest, WhatEachRankDecidesIsOpenInTheDocumentOfAll) {
  const RunConfig open = tiny({"train.replicas=2"});
  DecisionLog log;
  const RunConfig shared = decide(open, measured_target(open), for_step | for_run, log, {.all = 2, .local = 2});
  EXPECT_NE(shared.document.resolved_yaml().find("recompute: auto"), std::string::npos);
  const RunConfig own = decide(shared, measured_target(shared), for_rank, log, {.all = 2, .local = 2});
  EXPECT_EQ(own.document.resolved_yaml(), shared.document.resolved_yaml());
}

TEST_F(DecisionsTest, WarnsOfFewUpdates) {
  DecisionLog log;
  const RunConfig decided =
      decided_alone(tiny({"data.pipeline.batch={size: auto, max: 48}", "memory.limits={cpu: 64MiB}"}), log);
  EXPECT_EQ(decided.data->pipeline.batch_size, 48);
  ASSERT_EQ(log.warnings.size(), 1u);
  EXPECT_NE(log.warnings[0].find("only 2 updates an epoch"), std::string::npos) << log.warnings[0];
}

TEST_F(DecisionsTest, ABudgetThatCannotBeMetIsRefused) {
  DecisionLog log;
  EXPECT_THROW((void)decided_alone(tiny({"memory.budget=1KiB"}), log), OutOfMemory);
  EXPECT_NO_THROW((void)decided_alone(tiny({"memory.budget=1KiB", "recompute=none"}), log)) << "the user has chosen";
  EXPECT_THROW((void)decided_alone(tiny({"memory.limits={cpu: 1KiB}", "data.pipeline.batch.size=auto"}), log),
               OutOfMemory);
}

}  // namespace
}  // namespace bantam::run::decisions_test
