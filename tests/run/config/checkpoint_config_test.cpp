// `checkpoint:` as a configuration has it.
#include "bantam/base/error.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::checkpoint_config_test {
namespace {

class CheckpointConfigTest : public RunTest {
 protected:
  static CheckpointConfig read(const std::vector<std::string>& overrides = {}) { return tiny(overrides).checkpoint; }
  static std::string error_of(const std::vector<std::string>& overrides) {
    try {
      (void)read(overrides);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  }
};

TEST_F(CheckpointConfigTest, Defaults) {
  const CheckpointConfig config = read();
  EXPECT_EQ(config.every, (std::vector{Duration::epochs(1), Duration::seconds(600)}));
  EXPECT_EQ(config.min_seconds, 30);
  EXPECT_EQ(config.keep_last, 2);
  EXPECT_FALSE(config.best);
  const RunConfig again = parse_run_config(tiny().document.resolved_yaml(), "tiny.yaml", {});
  EXPECT_EQ(again.checkpoint.every, config.every) << "as config.yaml of a run has it";
}

TEST_F(CheckpointConfigTest, OneDurationOrSeveralOrNone) {
  EXPECT_EQ(read({"checkpoint.every=500"}).every, std::vector{Duration::updates(500)});
  EXPECT_EQ(read({"checkpoint.every=2epochs"}).every, std::vector{Duration::epochs(2)});
  EXPECT_EQ(read({"checkpoint.every=[5min, 100updates]"}).every,
            (std::vector{Duration::seconds(300), Duration::updates(100)}));
  EXPECT_TRUE(read({"checkpoint.every=off"}).every.empty());
  EXPECT_TRUE(read({"checkpoint.every=[]"}).every.empty());
  for (const char* wrong : {"0", "0s", "often", "[1epoch, never]", "{a: 1}"})
    EXPECT_NE(error_of({std::string("checkpoint.every=") + wrong}).find("checkpoint.every"), std::string::npos)
        << wrong;
}

TEST_F(CheckpointConfigTest, IntervalAndNumber) {
  EXPECT_EQ(read({"checkpoint.min_interval=5min"}).min_seconds, 300);
  EXPECT_EQ(read({"checkpoint.min_interval=0s"}).min_seconds, 0);
  EXPECT_NE(error_of({"checkpoint.min_interval=3epochs"}).find("min_interval"), std::string::npos);
  EXPECT_EQ(read({"checkpoint.keep_last=1"}).keep_last, 1);
  EXPECT_NE(error_of({"checkpoint.keep_last=0"}).find("keep_last"), std::string::npos);
  EXPECT_NE(error_of({"checkpoint.keep=3"}).find("unknown key 'keep'"), std::string::npos);
}

TEST_F(CheckpointConfigTest, TheBest) {
  const CheckpointConfig accuracy = read({"checkpoint.best={}"}), loss = read({"checkpoint.best={metric: loss}"});
  ASSERT_TRUE(accuracy.best && loss.best);
  EXPECT_EQ(accuracy.best->metric, "accuracy");
  EXPECT_TRUE(accuracy.best->larger);
  EXPECT_EQ(loss.best->metric, "loss");
  EXPECT_FALSE(loss.best->larger);
  EXPECT_TRUE(read({"checkpoint.best={metric: loss, mode: max}"}).best->larger);
  EXPECT_FALSE(read({"checkpoint.best={mode: min}"}).best->larger);
  EXPECT_FALSE(read({"checkpoint.best=off"}).best);
  const CheckpointConfig values = read({"checkpoint.best={}", "train.loss=mse", "data.labels=values",
                                        "model.layers=[{conv2d: {filters: 4, kernel: 3, stride: 4}}, "
                                        "global_average_pool, {dense: {units: 3}}]"});
  ASSERT_TRUE(values.best);
  EXPECT_EQ(values.best->metric, "loss") << "no sample of a regression is right";
  EXPECT_FALSE(values.best->larger);
  const CheckpointConfig restored = read({"train.stop_early={metric: accuracy, restore_best: true}"});
  ASSERT_TRUE(restored.best) << "which restores them";
  EXPECT_EQ(restored.best->metric, "accuracy");
  EXPECT_TRUE(restored.best->larger);
  EXPECT_NE(error_of({"train.stop_early={restore_best: true}", "checkpoint.best={metric: accuracy}"})
                .find("restore_best needs the weights of the best loss"),
            std::string::npos);
  EXPECT_FALSE(tiny({"train.metrics=[mse]", "train.stop_early={metric: mse}"}).train.stop_early->larger);
  EXPECT_NE(error_of({"train.stop_early={}", "train.evaluate={every: 4updates}"}).find("must be in epochs"),
            std::string::npos);
  const std::string unknown = error_of({"checkpoint.best={metric: f1}"});
  EXPECT_NE(unknown.find("checkpoint.best.metric: expected one of loss, accuracy, got 'f1'"), std::string::npos)
      << unknown;
  EXPECT_NE(error_of({"checkpoint.best={mode: most}"}).find("max"), std::string::npos);
  EXPECT_FALSE(tiny({"train.metrics=[mae, f1]", "checkpoint.best={metric: mae}"}).checkpoint.best->larger);
  EXPECT_TRUE(tiny({"train.metrics=[mae, f1]", "checkpoint.best={metric: f1}"}).checkpoint.best->larger);
  EXPECT_NE(error_of({"checkpoint.best={}", "train.evaluate=false"}).find("needs evaluations"), std::string::npos);
}

}  // namespace
}  // namespace bantam::run::checkpoint_config_test
