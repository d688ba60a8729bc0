// Mixed batches through the loader: the reference's bits, whatever made them, and soft targets beside labels.
#include "bantam/base/error.h"
#include "bantam/data/pipeline/mix.h"
#include "bantam/engine/losses/loss.h"
#include "bantam/kernels/input/mix_batch_reference.h"
#include "tests/data/delivery/loader_fixture.h"

namespace bantam::mixed_batches_test {
namespace {

using testing::message_of;

class MixedBatchesTest : public LoaderTest {};

struct SoftBatch {
  Shape shape;
  std::vector<float> images, targets;
  std::vector<std::int32_t> labels;
  bool operator==(const SoftBatch&) const = default;
};

std::vector<SoftBatch> rest_of(BatchSource& source, const Context& context) {
  std::vector<SoftBatch> batches;
  Batch batch;
  while (source.next(context, batch))
    batches.push_back({batch.at(kImages).shape(), to_host_floats(batch.at(kImages), context.stream),
                       to_host<float>(batch.at(kTargets), context.stream),
                       to_host<std::int32_t>(batch.at(kLabels), context.stream)});
  return batches;
}

PipelineOptions mixed(PipelineOptions options = full()) {
  options.mix = {.smoothing = 0.1, .mixup = MixStage{.alpha = 0.5}, .cutmix = MixStage{.alpha = 1.0, .share = 0.3}};
  return options;
}

TEST_P(MixedBatchesTest, AreTheReferenceOfUnmixedOnes) {
  const auto clean = source(full());
  clean->start(2);
  const std::vector<testing::HostBatch> before = testing::rest_of_epoch(*clean, context());
  const auto soft = source(mixed());
  soft->start(2);
  const std::vector<SoftBatch> after = rest_of(*soft, context());
  ASSERT_EQ(after.size(), before.size());  // the last one has 5 samples, the middle one of which is alone
  const MixPlanner planner(mixed().mix, {kShape[0], kShape[1]}, 1);
  for (std::size_t b = 0; b < before.size(); ++b) {
    const std::int64_t size = before[b].size;
    std::vector<kernels::SampleMix> table(static_cast<std::size_t>(size));
    planner.plan(2, static_cast<std::int64_t>(b) * kBatch, table);
    std::vector<float> images(before[b].images.size()), rows(table.size() * 3), targets(rows.size());
    kernels::reference::mix_images({size, kShape[0], kShape[1], kShape[2]}, table.data(), before[b].images.data(),
                                   images.data());
    for (std::size_t i = 0; i < table.size(); ++i) rows[i * 3 + static_cast<std::size_t>(before[b].labels[i])] = 1.0f;
    kernels::reference::mix_targets({.batch = size, .classes = 3, .smoothing = 0.1f}, table.data(), rows.data(),
                                    targets.data());
    EXPECT_EQ(after[b].images, images) << b;
    EXPECT_EQ(after[b].targets, targets) << b;
    EXPECT_NE(after[b].images, before[b].images) << b;
    for (std::size_t i = 0; i < table.size(); ++i) {
      const bool own = table[i].share >= 0.5f || 2 * i + 1 == table.size();
      EXPECT_EQ(after[b].labels[i], before[b].labels[own ? i : table.size() - 1 - i]);
    }
  }
}

TEST_P(MixedBatchesTest, TheSameBitsForAnyWorkersCacheAndPath) {
  const auto first = source(mixed());
  first->start(1);
  const std::vector<SoftBatch> expected = rest_of(*first, context());
  for (const CacheKind cache : {CacheKind::ram, CacheKind::off})
    for (const std::int64_t workers : {0, 1, 4})
      for (const bool staged : {false, true}) {
        PipelineOptions options = with_workers(mixed(), workers, 3);
        options.cache = cache;
        const auto other = source(options, 1, staged);
        other->start(1);
        EXPECT_EQ(rest_of(*other, context()), expected) << workers << staged;
        other->start(1, 3);
        const std::vector<SoftBatch> tail = rest_of(*other, context());
        EXPECT_TRUE(std::equal(tail.begin(), tail.end(), expected.begin() + 3, expected.end())) << workers << staged;
      }
}

TEST_P(MixedBatchesTest, HeldOutSamplesHaveProbabilitiesUnmixed) {
  const auto clean = source(evaluation_pipeline(full()));
  const auto soft = source(evaluation_pipeline(mixed()));
  const std::vector<testing::HostBatch> before = testing::rest_of_epoch(*clean, context());
  const std::vector<SoftBatch> after = rest_of(*soft, context());
  ASSERT_EQ(after.size(), before.size());
  for (std::size_t b = 0; b < after.size(); ++b) {
    EXPECT_EQ(after[b].images, before[b].images);
    EXPECT_EQ(after[b].labels, before[b].labels);
    for (std::size_t i = 0; i < after[b].labels.size(); ++i)
      for (std::int32_t c = 0; c < 3; ++c)
        EXPECT_FLOAT_EQ(after[b].targets[i * 3 + static_cast<std::size_t>(c)],
                        c == after[b].labels[i] ? 0.9f + 0.1f / 3 : 0.1f / 3);
  }
}

TEST_P(MixedBatchesTest, TensorsSayWhatBatchesHave) {
  const std::vector<TensorFacts> tensors = source(mixed())->tensors();
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[1].name, kLabels);
  EXPECT_EQ(tensors[1].classes, 3);
  EXPECT_EQ(tensors[2].name, kTargets);
  EXPECT_EQ(tensors[2].shape, Shape{3});
  EXPECT_EQ(tensors[2].dtype, DType::float32);
}

TEST_P(MixedBatchesTest, HalfPrecisionBatchesAreMixedToo) {
  const auto soft = source(mixed());
  const auto half = source(mixed());
  soft->start(0);
  half->start(0);
  const std::vector<SoftBatch> wide = rest_of(*soft, context());
  const std::vector<SoftBatch> narrow = rest_of(*half, context(PrecisionKind::mixed_float16));
  for (std::size_t b = 0; b < wide.size(); ++b) {
    EXPECT_EQ(wide[b].targets, narrow[b].targets);
    for (std::size_t i = 0; i < wide[b].images.size(); ++i)
      ASSERT_NEAR(wide[b].images[i], narrow[b].images[i], 4e-3f);  // values below 2, rounded twice to 11 bits
  }
}

TEST_P(MixedBatchesTest, ADevicesOwnBatchesAreNotMixed) {
  PipelineOptions options = mixed();
  options.cache = CacheKind::device;
  EXPECT_CONTAINS(message_of<ConfigError>([&] { (void)source(options, 1, true); }),
                  "cache: device does not go with one_hot, mixup and cutmix");
}

TEST_P(MixedBatchesTest, MetaDevicesTakeTheSameMemory) {
  if (!GetParam().is_cpu()) GTEST_SKIP() << "a device's share is compared by the tests of plans";
  const auto peak = [&](Device device) {
    Runtime runtime({.threads = 1});
    const Context at = Context::make(runtime, device);
    {
      ImageBatchSource source(runtime, reader_of(dataset()),
                              {.pipeline = with_workers(mixed(), 1, 3), .device = device, .seed = 1});
      for (Batch batch; source.next(at, batch);) EXPECT_EQ(batch.at(kTargets).shape()[1], 3);
    }
    return runtime.allocator(device).stats().peak_bytes;
  };
  EXPECT_EQ(peak(Device::meta_of(Device::cpu())), peak(Device::cpu()));
}

INSTANTIATE_TEST_SUITE_P(Devices, MixedBatchesTest, ::testing::Values(Device::cpu(), Device::cuda(0)),
                         [](const auto& info) { return std::string(info.param.is_cpu() ? "cpu" : "cuda"); });

}  // namespace
}  // namespace bantam::mixed_batches_test
