// `train.ema` and `train.prune` as a configuration has them.
#include <limits>

#include "bantam/base/error.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::pruning_config_test {
namespace {

class PruningConfigTest : public RunTest {
 protected:
  static OptimizerOptions read(const std::string& override) { return tiny({override}).train.optimizer; }
  static void expect_error(const std::string& override, const std::string& part) {
    try {
      (void)read(override);
      ADD_FAILURE() << override;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
};

TEST_F(PruningConfigTest, NeitherIsThereUnlessNamed) {
  EXPECT_FALSE(tiny().train.optimizer.ema);
  EXPECT_FALSE(tiny().train.optimizer.prune);
  EXPECT_FALSE(read("train.ema=off").ema);
  EXPECT_FALSE(read("train.prune=off").prune);
  EXPECT_EQ(tiny().document.resolved_yaml().find("prune"), std::string::npos) << "runs of before resume";
}

TEST_F(PruningConfigTest, Ema) {
  const EmaOptions plain = read("train.ema={}").ema.value();
  EXPECT_DOUBLE_EQ(plain.decay, 0.999);
  EXPECT_FALSE(plain.warmup);
  EXPECT_EQ(plain.every, 1);
  EXPECT_TRUE(plain.evaluate);
  const EmaOptions all = read("train.ema={decay: 0.9, warmup: true, every: 4updates, evaluate: false}").ema.value();
  EXPECT_DOUBLE_EQ(all.decay, 0.9);
  EXPECT_TRUE(all.warmup);
  EXPECT_EQ(all.every, 4);
  EXPECT_FALSE(all.evaluate);
  expect_error("train.ema={decay: 1}", "train.ema.decay");
  expect_error("train.ema={every: 2epochs}", "train.ema.every");
  expect_error("train.ema={momentum: 0.9}", "unknown key 'momentum'");
}

TEST_F(PruningConfigTest, Prune) {
  const PruneOptions plain = read("train.prune={end: 2000}").prune.value();
  EXPECT_EQ(plain.schedule, PruneSchedule::polynomial);
  EXPECT_EQ(plain.pattern, PrunePattern::magnitude);
  EXPECT_DOUBLE_EQ(plain.initial, 0.2);
  EXPECT_DOUBLE_EQ(plain.final_sparsity, 0.8);
  EXPECT_EQ(plain.begin, 0);
  EXPECT_EQ(plain.end, 2000);
  EXPECT_EQ(plain.frequency, 100);
  EXPECT_EQ(plain.match, std::vector<std::string>{"*weight*"});
  const PruneOptions constant =
      read("train.prune={schedule: constant, final: 0.5, begin: 10, frequency: 7updates, match: [a, b]}").prune.value();
  EXPECT_EQ(constant.schedule, PruneSchedule::constant);
  EXPECT_EQ(constant.begin, 10);
  EXPECT_EQ(constant.frequency, 7);
  EXPECT_EQ(constant.end, std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(constant.match, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(read("train.prune={end: 9, match: \"*a\"}").prune->match, std::vector<std::string>{"*a"});
  const PruneOptions four = read("train.prune={pattern: \"2:4\", end: 5}").prune.value();
  EXPECT_EQ(four.pattern, PrunePattern::two_of_four);
  EXPECT_EQ(four.schedule, PruneSchedule::constant);
}

TEST_F(PruningConfigTest, ErrorsOfPruning) {
  expect_error("train.prune={}", "needs end");
  expect_error("train.prune={begin: 10, end: 10}", "end must come after begin");
  expect_error("train.prune={schedule: constant, begin: 10, end: 5}", "end must come after begin");
  expect_error("train.prune={final: 1.0, end: 10}", "train.prune.final");
  expect_error("train.prune={pattern: \"2:4\", final: 0.8}", "unknown key 'final'");
  expect_error("train.prune={pattern: \"4:8\", end: 5}", "train.prune.pattern");
}

}  // namespace
}  // namespace bantam::run::pruning_config_test
