// A session is what one would make by hand; an effective batch runs as its micro-batches would one by one.
#include "bantam/engine/step/training_session.h"

#include "bantam/base/error.h"
#include "bantam/engine/step/training_step.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::testing::training_session_test {
namespace {

const SessionOptions kOptions{.model = {.seed = 3}, .optimizer = {.rule = adam({.learning_rate = 0.1f})}};

class TrainingSessionTest : public EngineTest {
 protected:
  TrainingSession session() { return {runtime(), device(), small_network(), kOptions}; }
  Batch batch(std::int64_t first, std::int64_t size) {
    return make_batch(context(), small_network().input_shape(), 5, first, size);
  }
  std::vector<float> weights(const Model& model) {
    return to_host_floats(model.parameters().master(), runtime().stream(device()));
  }
};

TEST_P(TrainingSessionTest, IsWhatOneMakesByHand) {
  TrainingSession made = session();
  Model model(runtime(), device(), small_network(), kOptions.model);
  Optimizer optimizer(model, kOptions.optimizer);
  TrainingStep step(model, optimizer, {});
  EXPECT_EQ(weights(made.model()), weights(model));
  made.step().step(batch(0, 6));
  step.step(batch(0, 6));
  EXPECT_EQ(weights(made.model()), weights(model));
  EXPECT_EQ(made.optimizer().control().updates, 1);
}

TEST_P(TrainingSessionTest, AnEffectiveBatchIsItsMicroBatches) {
  TrainingSession by_hand = session(), together = session();
  by_hand.step().micro_batch(batch(0, 6), 0, 10);
  by_hand.step().micro_batch(batch(6, 4), 6, 10);
  by_hand.step().update();
  MicroBatches micro_batches(together.step());
  EXPECT_TRUE(micro_batches.accumulate(2, 10, [&](std::int64_t i) { return i == 0 ? batch(0, 6) : batch(6, 4); }));
  together.step().update();
  EXPECT_EQ(weights(together.model()), weights(by_hand.model()));
  EXPECT_EQ(together.step().read_metrics().at(0).samples, 10);
}

TEST_P(TrainingSessionTest, EqualBatchesNeedNoSum) {
  TrainingSession named = session(), counted = session();
  const auto next = [&](std::int64_t i) { return batch(6 * i, 6); };
  MicroBatches(named.step()).accumulate(3, 18, next);
  MicroBatches(counted.step()).accumulate(3, 0, next);
  named.step().update();
  counted.step().update();
  EXPECT_EQ(weights(counted.model()), weights(named.model()));
}

TEST_P(TrainingSessionTest, AStopReleasesAll) {
  TrainingSession stopped = session(), plain = session();
  EXPECT_FALSE(MicroBatches(stopped.step()).accumulate(3, 18, [&](std::int64_t i) -> std::optional<Batch> {
    if (i == 2) return std::nullopt;
    return batch(100 + 6 * i, 6);
  }));
  for (TrainingSession* run : {&stopped, &plain}) run->step().step(batch(0, 6));
  EXPECT_EQ(weights(stopped.model()), weights(plain.model()));
  EXPECT_EQ(stopped.step().read_metrics().size(), 1u);
}

BANTAM_INSTANTIATE_ON_DEVICES(TrainingSessionTest);

}  // namespace
}  // namespace bantam::testing::training_session_test
