// Runs of several replicas: the plan is what they take, a run that stopped goes on to the same bits, and what the
// configuration refuses.
#include "bantam/base/error.h"
#include "bantam/run/fit/run_plan.h"
#include "bantam/run/train/run_directory.h"
#include "bantam/run/train/train.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::replicas_test {
namespace {

using ReplicasTest = RunTest;

TEST_F(ReplicasTest, TakeWhatIsPlanned) {
  const std::uint64_t plain = plan_run(tiny()).peak_bytes;
  for (const char* replicas : {"train.replicas=2", "train.replicas=4"}) {
    for (const char* accumulate : {"train.accumulate=1", "data.pipeline.batch.size=12"}) {
      const RunConfig config = tiny({replicas, accumulate});
      const Outcome outcome = train(config, {.folder = path(std::string(replicas) + accumulate)});
      EXPECT_EQ(outcome.memory.peak_bytes, outcome.planned_peak_bytes) << replicas << " " << accumulate;
      EXPECT_EQ(outcome.memory.departures, 0u);
    }
    EXPECT_GT(plan_run(tiny({replicas})).peak_bytes, plain) << "gradients wait";
  }
}

TEST_F(ReplicasTest, GoOnToTheSameBitsFromTheMidstOfAnEpoch) {
  const RunConfig config = tiny({"train.replicas=2", "train.ema={decay: 0.9}"});
  (void)train(config, {.folder = path("whole")});
  int asked = 0;
  const Outcome stopped = train(config, {.folder = path("r"), .stop = [&asked] { return ++asked > 5; }});
  ASSERT_TRUE(stopped.result.stopped);
  EXPECT_EQ(stopped.effective_batch, 32);
  EXPECT_EQ(stopped.result.epoch, 0);
  EXPECT_GT(stopped.result.update, 0);
  RunDirectory folder = RunDirectory::open(path("r"));
  const Outcome rest = train(read_run_config(folder.config(), {}), {.threads = 1}, {}, {.resume = &folder});
  EXPECT_EQ(stopped.result.updates + rest.result.updates, 6) << "two epochs of three";
  for (const char* file : {"weights.safetensors", "weights-ema.safetensors"})
    EXPECT_EQ(read_file(path("r") / file), read_file(path("whole") / file)) << file;
}

TEST_F(ReplicasTest, ArePartOfWhatARunIs) {
  int asked = 0;
  (void)train(tiny(), {.folder = path("r"), .stop = [&asked] { return ++asked > 3; }});
  RunDirectory folder = RunDirectory::open(path("r"));
  const RunConfig changed = read_run_config(folder.config(), std::vector<std::string>{"train.replicas=2"});
  EXPECT_THROW((void)train(changed, {}, {}, {.resume = &folder}), ConfigError);
}

TEST_F(ReplicasTest, AreAPowerOfTwoThatAnEpochHas) {
  for (const char* wrong : {"train.replicas=3", "train.replicas=0", "train.replicas=2048", "train.replicas=two"}) {
    EXPECT_THROW((void)tiny({wrong}), ConfigError) << wrong;
  }
  try {
    (void)tiny({"train.replicas=6"});
    FAIL() << "6 is no power of two";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("expected a power of two from 1 to 1024, got 6"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW((void)train(tiny({"train.replicas=8"}), {.folder = path("few")}), DataError) << "6 batches";
}

}  // namespace
}  // namespace bantam::run::replicas_test
