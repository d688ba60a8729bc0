// What is said when memory ran out: the plan's numbers, edits that fit, lines that a terminal shows.
#include "bantam/cli/print/oom_message.h"

#include <sstream>

#include <gtest/gtest.h>

#include "bantam/run/fit/run_plan.h"
#include "tests/run/run_fixture.h"

namespace bantam::cli::oom_message_test {
namespace {

class OomMessageTest : public run::RunTest {
 protected:
  static void expect_in(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks " << part;
  }
};

TEST_F(OomMessageTest, AdviceIsWrittenAsAConfigurationHasIt) {
  const RunConfig config = tiny();
  OomAdvice advice{.needed_bytes = 4096};
  const StepPlanOptions half = train_plan_options(config, {.batch = 8, .precision = config.precision});
  FittingEdit edit{.kind = FittingEdit::Kind::batch, .step = half, .pool_bytes = 3072};
  edit.step.accumulate = 2;
  edit.changes_statistics = true;
  advice.edits = {edit};
  const std::string text = advice_text(advice, 3500);
  expect_in(text, "The plan needs a pool of 4.00 KiB; there are 3.42 KiB. Each of these fits:");
  expect_in(text, "batch: {size: 8} with train: {accumulate: 2}");
  expect_in(text, "a pool of 3.00 KiB (-1.00 KiB), the same effective batch, but batch norm then sees 8 samples");
  expect_in(advice_text({.needed_bytes = 4096}, 1), "none of the limit is left for it");
}

TEST_F(OomMessageTest, ARefusedRunIsToldWhatWouldFit) {
  const std::string much = "data.train_samples=960";  // most of the pool is the data set
  const std::uint64_t pool = plan_run(tiny({much})).pool_bytes;
  const RunConfig config = tiny({much, "memory.limits={cpu: " + std::to_string(pool - pool / 20) + "}"});
  const OutOfMemory error("the pool does not fit", {.requested_bytes = pool, .limit_bytes = pool - pool / 20});
  const OutOfMemory explained = explain_training(error, config);
  const std::string text = explained.what();
  EXPECT_EQ(text.rfind("the pool does not fit\n", 0), 0u);
  expect_in(text, "largest holders at the planned peak:");
  expect_in(text, "data set and batches made ahead (input)");
  expect_in(text, "data: {limit:");
  EXPECT_EQ(explained.facts().requested_bytes, pool);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
}

TEST_F(OomMessageTest, WithoutAReasonToFindTheErrorStays) {
  const OutOfMemory error("another program has it all", {.requested_bytes = 1, .limit_bytes = std::uint64_t{1} << 40});
  const RunConfig config = tiny();
  EXPECT_STREQ(explain_training(error, config).what(), error.what());
  EXPECT_STREQ(explain_step(error, config, {.batch = 8, .precision = config.precision}).what(), error.what());
}

}  // namespace
}  // namespace bantam::cli::oom_message_test
