// Batches cut into micro-batches: which samples, aligned how, halved when, and what the micro-batches train.
#include "bantam/base/error.h"
#include "bantam/engine/step/training_step.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::micro_batches_test {
namespace {

using testing::EngineTest;

class MicroBatchesTest : public EngineTest {
 protected:
  /// Three tensors of 5 samples: 4 bytes, 12 bytes and 16 bytes each.
  Batch batch(const Context& context) {
    std::vector<std::int32_t> labels{0, 1, 2, 3, 4};
    std::vector<float> threes(15), fours(20);
    for (std::size_t i = 0; i < threes.size(); ++i) threes[i] = static_cast<float>(i);
    for (std::size_t i = 0; i < fours.size(); ++i) fours[i] = 100.0f + static_cast<float>(i);
    return {.tensors = {{"labels", context.upload({5}, labels.data())},
                        {"threes", context.upload({5, 3}, threes.data())},
                        {"fours", context.upload({5, 2, 2}, fours.data())}},
            .size = 5,
            .index = 9};
  }
};
BANTAM_INSTANTIATE_ON_DEVICES(MicroBatchesTest);

TEST_P(MicroBatchesTest, ASliceIsOfEveryTensor) {
  const Context c = context();
  const Batch whole = batch(c);
  for (std::int64_t first = 0; first < 5; ++first)
    for (std::int64_t count = 1; first + count <= 5; ++count) {
      const Batch micro_batch = slice(c, whole, first, count);
      EXPECT_EQ(micro_batch.size, count);
      EXPECT_EQ(micro_batch.index, 9);
      ASSERT_EQ(micro_batch.tensors.size(), 3u);
      EXPECT_EQ(micro_batch.at("labels").shape(), Shape{count});
      EXPECT_EQ(micro_batch.at("threes").shape(), (Shape{count, 3}));
      EXPECT_EQ(micro_batch.at("fours").shape(), (Shape{count, 2, 2}));
      EXPECT_EQ(to_host<std::int32_t>(micro_batch.at("labels"), c.stream)[0], first);
      EXPECT_EQ(to_host<float>(micro_batch.at("threes"), c.stream).back(), static_cast<float>((first + count) * 3 - 1));
      EXPECT_EQ(to_host<float>(micro_batch.at("fours"), c.stream).back(), static_cast<float>(99 + (first + count) * 4));
    }
}

TEST_P(MicroBatchesTest, AViewWhereItIsAlignedElseACopy) {
  const Context c = context();
  const Batch whole = batch(c);
  for (std::int64_t first = 0; first < 5; ++first) {
    const Batch micro_batch = slice(c, whole, first, 1);
    for (const auto& [name, tensor] : micro_batch.tensors) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data()) % 16, 0u) << name << " from " << first;
      const auto sample_bytes = static_cast<std::int64_t>(tensor.bytes());
      EXPECT_EQ(tensor.storage() == whole.at(name).storage(), first * sample_bytes % 16 == 0)
          << name << " from " << first;
    }
  }
}

TEST_P(MicroBatchesTest, SamplesThatAreNotThereAreRefused) {
  const Context c = context();
  const Batch whole = batch(c);
  EXPECT_THROW((void)slice(c, whole, 0, 6), ShapeError);
  EXPECT_THROW((void)slice(c, whole, 5, 1), ShapeError);
  EXPECT_THROW((void)slice(c, whole, -1, 1), ShapeError);
  EXPECT_THROW((void)slice(c, whole, 0, 0), ShapeError);
}

struct Training {
  Training(Runtime& runtime, Device device)
      : model(runtime, device, testing::small_network(false), {.seed = 2}),
        optimizer(model, {.rule = sgd()}),
        step(model, optimizer, {}),
        micro_batches(step) {}
  Model model;
  Optimizer optimizer;
  TrainingStep step;
  MicroBatches micro_batches;
};

TEST_P(MicroBatchesTest, HalvesUntilOneSampleIsLeft) {
  Training t(runtime(), device());
  std::vector<std::int64_t> most;
  EXPECT_EQ(t.micro_batches.most(), 0) << "whole";
  while (t.micro_batches.halve(13)) most.push_back(t.micro_batches.most());
  EXPECT_EQ(most, (std::vector<std::int64_t>{7, 4, 2, 1}));
  EXPECT_FALSE(t.micro_batches.halve(13));
  EXPECT_EQ(t.micro_batches.most(), 1);
  t.micro_batches.split(6);
  EXPECT_TRUE(t.micro_batches.halve(4)) << "of batches of 4, micro_batches have 4 samples";
  EXPECT_EQ(t.micro_batches.most(), 2);
}

TEST_P(MicroBatchesTest, SaysWhetherMicroBatchesAreCopies) {
  Training t(runtime(), device());
  const Batch whole = batch(context());
  EXPECT_FALSE(t.micro_batches.copies(whole)) << "in one micro_batch";
  t.micro_batches.split(4);
  EXPECT_FALSE(t.micro_batches.copies(whole)) << "sample 4 of all tensors begins at a multiple of 16 bytes";
  t.micro_batches.split(2);
  EXPECT_TRUE(t.micro_batches.copies(whole));
}

/// A gradient of a batch is the sum of its micro_batches', in another order of additions only.
TEST_P(MicroBatchesTest, MicroBatchesTrainWhatTheBatchWould) {
  Training whole(runtime(), device()), cut(runtime(), device());
  const Batch batch = testing::make_batch(whole.model.context(Pass::train), {8, 8, 3}, 5, 0, 13);
  cut.micro_batches.split(5);
  for (Training* t : {&whole, &cut}) {
    t->micro_batches.train(batch, 0, 13);
    t->step.update();
  }
  const Stream stream = runtime().stream(device());
  const std::vector<float> a = to_host<float>(whole.model.parameters().gradient(), stream),
                           b = to_host<float>(cut.model.parameters().gradient(), stream);
  EXPECT_LT(testing::relative_difference(b, a), 1e-5);  // float32 sums of 13 samples in another order
  const Metrics one = whole.step.read_metrics().at(0), three = cut.step.read_metrics().at(0);
  EXPECT_EQ(three.samples, 13);
  EXPECT_NEAR(three.loss, one.loss, 1e-6 * std::abs(one.loss));
  EXPECT_EQ(three.accuracy, one.accuracy);
}

TEST_P(MicroBatchesTest, ABatchNormRefusesMicroBatchesThatWereNotAskedForByName) {
  EXPECT_TRUE(uses_batch_statistics(testing::small_network(true)));
  EXPECT_FALSE(uses_batch_statistics(testing::small_network(false)));
  EXPECT_THROW(check_on_oom(OnOutOfMemory::accumulate, testing::small_network(true)), ConfigError);
  EXPECT_NO_THROW(check_on_oom(OnOutOfMemory::accumulate, testing::small_network(false)));
  EXPECT_NO_THROW(check_on_oom(OnOutOfMemory::accumulate_with_batch_norm, testing::small_network(true)));
  EXPECT_NO_THROW(check_on_oom(OnOutOfMemory::fail, testing::small_network(true)));
}

}  // namespace
}  // namespace bantam::micro_batches_test
