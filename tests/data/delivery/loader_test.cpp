// The loader on every device: each stage by hand, and the same batches for any workers, depth, cache and place of
// start.
#include <algorithm>
#include <numeric>

#include "bantam/base/error.h"
#include "bantam/data/augment/built_in.h"
#include "bantam/engine/train/device_batches.h"
#include "tests/data/delivery/loader_fixture.h"

namespace bantam::loader_test {
namespace {

using testing::copy_batch;
using testing::HostBatch;
using testing::message_of;
using testing::ramp_label;
using testing::ramp_pixel;
using testing::rest_of_epoch;
using testing::whole_epoch;

TEST_P(LoaderTest, ImagesComeInOrderAsTheyAre) {
  const auto batches = whole_epoch(*source(plain()), context(), 0);
  ASSERT_EQ(batches.size(), 7u);
  std::int64_t image = 0;
  for (const HostBatch& batch : batches) {
    EXPECT_EQ(batch.shape, kShape.prepend(batch.size));
    for (std::int64_t i = 0; i < batch.size; ++i, ++image) {
      EXPECT_EQ(batch.labels[static_cast<std::size_t>(i)], ramp_label(image, 3));
      for (std::int64_t p = 0; p < 60; ++p)
        ASSERT_EQ(batch.images[static_cast<std::size_t>(i * 60 + p)], static_cast<float>(ramp_pixel(image, p)));
    }
  }
  EXPECT_EQ(image, kSamples);
}

TEST_P(LoaderTest, SaysWhichSamplesABatchHas) {
  PipelineOptions shuffled = plain();
  shuffled.shuffle.emplace();
  for (const PipelineOptions& options : {plain(), shuffled}) {
    const auto batches = source(options);
    for (const std::int64_t epoch : {std::int64_t{0}, std::int64_t{2}}) {
      const std::vector<HostBatch> made = whole_epoch(*batches, context(), epoch);
      batches->start(1);  // wherever the source is
      for (std::size_t b = 0; b < made.size(); ++b) {
        const std::vector<std::int64_t> numbers = batches->sample_numbers(epoch, static_cast<std::int64_t>(b));
        ASSERT_EQ(static_cast<std::int64_t>(numbers.size()), made[b].size);
        for (std::size_t i = 0; i < numbers.size(); ++i)
          for (std::int64_t p = 0; p < 60; ++p)
            ASSERT_EQ(made[b].images[i * 60 + static_cast<std::size_t>(p)],
                      static_cast<float>(ramp_pixel(numbers[i], p)));
      }
    }
  }
}

TEST_P(LoaderTest, NormalizeByHand) {
  PipelineOptions options = plain();
  options.normalize = {.scale = 0.5, .mean = {1.0, 2.0, 4.0}, .std = {2.0}};
  const auto batch = whole_epoch(*source(options), context(), 0).at(0);
  // (x·0.5 - mean)/2 is exact in float32: x is an integer below 256.
  const float means[] = {1.0f, 2.0f, 4.0f};
  for (std::int64_t p = 0; p < 60; ++p)
    EXPECT_EQ(batch.images[static_cast<std::size_t>(60 + p)],
              (static_cast<float>(ramp_pixel(1, p)) * 0.5f - means[p % 3]) / 2.0f);
}

/// Pixel (row, column, channel) of image `image`, outside it as `mode` says (padding of at most 2, so one reflection is
/// enough).
float padded_pixel(std::int64_t image, std::int64_t row, std::int64_t column, std::int64_t c, kernels::PadMode mode) {
  const auto reflect = [](std::int64_t at, std::int64_t extent) {
    return at < 0 ? -at : at >= extent ? 2 * (extent - 1) - at : at;
  };
  const bool inside = row >= 0 && row < 4 && column >= 0 && column < 5;
  if (!inside && mode == kernels::PadMode::zero) return 0.0f;
  return static_cast<float>(ramp_pixel(image, (reflect(row, 4) * 5 + reflect(column, 5)) * 3 + c));
}

TEST_P(LoaderTest, CropAndFlipFollowThePlan) {
  for (const auto mode : {kernels::PadMode::zero, kernels::PadMode::reflect}) {
    PipelineOptions options = plain();
    options.augmentations = {random_crop({.height = 3, .width = 5, .padding = 2, .mode = mode}), random_flip()};
    const BatchPlanner planner(options.augmentations, batch_shape(options, kShape), 1);
    std::vector<std::int32_t> order(kSamples);
    std::iota(order.begin(), order.end(), 0);
    std::vector<kernels::ImagePlacement> placements(kSamples);
    planner.plan(order, 4, 0, placements);
    std::size_t image = 0;
    for (const HostBatch& batch : whole_epoch(*source(options), context(), 4)) {
      EXPECT_EQ(batch.shape, (Shape{batch.size, 3, 5, 3}));
      std::size_t at = 0;
      for (std::int64_t b = 0; b < batch.size; ++b, ++image) {
        const kernels::ImagePlacement& p = placements[image];
        for (std::int64_t i = 0; i < 3; ++i)
          for (std::int64_t j = 0; j < 5; ++j)
            for (std::int64_t c = 0; c < 3; ++c)
              ASSERT_EQ(batch.images[at++], padded_pixel(static_cast<std::int64_t>(image), i + p.top,
                                                         (p.flip ? 4 - j : j) + p.left, c, mode));
      }
    }
    EXPECT_EQ(image, static_cast<std::size_t>(kSamples));
  }
}

TEST_P(LoaderTest, AShuffledEpochGivesEverySampleOnceWithItsLabel) {
  PipelineOptions options = plain();
  options.shuffle.emplace();
  auto shuffled = source(with_workers(options, 2, 3));
  std::vector<std::int64_t> seen;
  for (const HostBatch& batch : whole_epoch(*shuffled, context(), 0)) {
    for (std::size_t i = 0; i < batch.labels.size(); ++i) {
      std::int64_t image = 0;
      while (image < kSamples && static_cast<float>(ramp_pixel(image, 0)) != batch.images[i * 60]) ++image;
      seen.push_back(image);
      EXPECT_EQ(batch.labels[i], ramp_label(image, 3));
    }
  }
  EXPECT_FALSE(std::is_sorted(seen.begin(), seen.end()));
  std::sort(seen.begin(), seen.end());
  ASSERT_EQ(seen.size(), static_cast<std::size_t>(kSamples));
  for (std::int64_t i = 0; i < kSamples; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
}

TEST_P(LoaderTest, SizesWithAndWithoutDropLast) {
  const auto all = source(plain());
  EXPECT_EQ(all->batches_per_epoch(), 7);
  EXPECT_EQ(all->size_of(0), 8);
  EXPECT_EQ(all->size_of(6), 5);
  EXPECT_THROW((void)all->size_of(7), Error);
  EXPECT_EQ(all->batch_size(), 8);
  EXPECT_EQ(all->image_shape(), kShape);
  EXPECT_EQ(all->classes(), 3);
  PipelineOptions options = plain();
  options.drop_last = true;
  const auto whole = source(options);
  EXPECT_EQ(whole->batches_per_epoch(), 6);
  const auto batches = whole_epoch(*whole, context(), 0);
  ASSERT_EQ(batches.size(), 6u);
  for (const HostBatch& batch : batches) EXPECT_EQ(batch.size, 8);
}

TEST_P(LoaderTest, BatchesDependOnSeedAndEpochOnly) {
  const auto reference = whole_epoch(*source(full()), context(), 3);
  EXPECT_EQ(whole_epoch(*source(full()), context(), 3), reference);
  EXPECT_NE(whole_epoch(*source(full()), context(), 4), reference);
  EXPECT_NE(whole_epoch(*source(full(), 2), context(), 3), reference);
}

TEST_P(LoaderTest, TheSameForAnyWorkersDepthCacheAndPath) {
  const auto reference = whole_epoch(*source(full()), context(), 3);
  for (const auto workers : {std::optional<std::int64_t>(0), std::optional<std::int64_t>(1),
                             std::optional<std::int64_t>(4), std::optional<std::int64_t>()}) {
    for (const auto depth :
         {std::optional<std::int64_t>(1), std::optional<std::int64_t>(5), std::optional<std::int64_t>()}) {
      for (const CacheKind cache : {CacheKind::ram, CacheKind::device, CacheKind::off}) {
        for (const bool staged : {false, true}) {
          PipelineOptions options = with_workers(full(), workers, depth);
          options.cache = cache;
          const auto other = source(options, 1, staged);
          EXPECT_EQ(whole_epoch(*other, context(), 3), reference)
              << "workers " << workers.value_or(-1) << ", depth " << depth.value_or(-1) << ", staged " << staged;
        }
      }
    }
  }
}

TEST_P(LoaderTest, StartsAnywhereAndAgain) {
  for (const std::int64_t workers : {0, 1, 4}) {
    for (const bool staged : {false, true}) {
      auto one = source(with_workers(full(), workers, 3), 1, staged);
      const auto second = whole_epoch(*one, context(), 1);
      one->start(1, 4);
      EXPECT_EQ(rest_of_epoch(*one, context()), std::vector<HostBatch>(second.begin() + 4, second.end()));
      // Away in the middle of an epoch, with batches under way, and back.
      Batch batch;
      one->start(0);
      for (int i = 0; i < 2; ++i) ASSERT_TRUE(one->next(context(), batch));
      EXPECT_EQ(whole_epoch(*one, context(), 1), second);
      one->start(1, 7);
      EXPECT_FALSE(one->next(context(), batch));
      EXPECT_THROW(one->start(1, 8), Error);
      EXPECT_THROW(one->start(-1), Error);
    }
  }
}

TEST_P(LoaderTest, AShareIsItsBatchesOfTheEpochAlone) {
  PipelineOptions options = plain();
  options.shuffle.emplace();
  const std::vector<HostBatch> whole = whole_epoch(*source(options), context(), 1);  // 7 batches
  const auto shared = source(options);
  shared->set_share(1, 2, 4);
  EXPECT_EQ(shared->batches_per_epoch(), 7) << "of all";
  shared->start(1, 0);
  EXPECT_EQ(rest_of_epoch(*shared, context()), (std::vector<HostBatch>{whole[1], whole[2], whole[5], whole[6]}));
  shared->start(1, 4);
  EXPECT_EQ(rest_of_epoch(*shared, context()), (std::vector<HostBatch>{whole[5], whole[6]}));
  EXPECT_THROW(shared->set_share(-1, 1, 4), Error);
  EXPECT_THROW(shared->set_share(0, 0, 4), Error);
  EXPECT_THROW(shared->set_share(3, 2, 4), Error);
}

TEST_P(LoaderTest, WithoutStartTheFirstEpochBegins) {
  auto one = source(with_workers(full(), 1, 2));
  const auto first = rest_of_epoch(*one, context());
  EXPECT_EQ(first, whole_epoch(*one, context(), 0));
}

TEST_P(LoaderTest, TypesMayChangeOnTheWay) {
  for (const std::int64_t workers : {0, 2}) {
    auto one = source(with_workers(full(), workers, 3));
    const auto reference = whole_epoch(*one, context(), 0);
    one->start(0);
    for (const HostBatch& expected : reference) {
      const bool half = expected.index % 3 == 1;
      Batch batch;
      ASSERT_TRUE(one->next(context(half ? PrecisionKind::mixed_float16 : PrecisionKind::float32), batch));
      EXPECT_EQ(batch.at(kImages).dtype(), half ? DType::float16 : DType::float32);
      const HostBatch got = testing::copy_batch(batch, context().stream);
      EXPECT_EQ(got.labels, expected.labels);
      for (std::size_t i = 0; i < got.images.size(); ++i)
        ASSERT_EQ(got.images[i], half ? static_cast<float>(Half(expected.images[i])) : expected.images[i]);
    }
  }
}

TEST_P(LoaderTest, ABatchKeptIsNotOverwritten) {
  for (const bool staged : {false, true}) {
    auto one = source(with_workers(full(), 2, 2), 1, staged);
    const auto reference = whole_epoch(*one, context(), 0);
    std::vector<Batch> kept;
    one->start(0);
    for (Batch batch; one->next(context(), batch);) kept.push_back(batch);
    for (std::size_t i = 0; i < reference.size(); ++i)
      EXPECT_EQ(testing::copy_batch(kept[i], context().stream), reference[i]);
  }
}

TEST_P(LoaderTest, AllMemoryGoesBack) {
  const auto in_use = [&] {
    return runtime_->allocator(GetParam()).stats().in_use_bytes +
           runtime_->allocator(Device::cpu()).stats().in_use_bytes + runtime_->pinned_allocator().stats().in_use_bytes;
  };
  const std::uint64_t before = in_use();
  for (const bool staged : {false, true}) {
    auto one = source(with_workers(full(), 3, 4), 1, staged);
    Batch batch;
    one->start(0);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(one->next(context(), batch));
    EXPECT_GT(in_use(), before);
    one.reset();  // with work under way
    batch = {};
    synchronize(context().stream);
    EXPECT_EQ(in_use(), before);
  }
}

TEST_P(LoaderTest, WaitingIsCounted) {
  auto one = source(with_workers(full(), 0, 1));
  EXPECT_EQ(one->waited_seconds(), 0.0);
  (void)whole_epoch(*one, context(), 0);
  EXPECT_GT(one->waited_seconds(), 0.0);
  one->start(1);
  EXPECT_EQ(one->waited_seconds(), 0.0);
}

TEST_P(LoaderTest, AnotherDeviceIsRefused) {
  auto one = source(plain());
  Batch batch;
  Context elsewhere = context();
  elsewhere.device = Device::meta_of(GetParam());
  EXPECT_CONTAINS(message_of<DeviceError>([&] { (void)one->next(elsewhere, batch); }), "batches are for");
}

// Batches that the device makes are those that `next` returns, by launches of any size, from any place on.
TEST_P(LoaderTest, TheDeviceMakesTheSameBatches) {
  PipelineOptions pipeline = full();
  const Context at = context(PrecisionKind::mixed_float16);
  for (const bool drop_last : {false, true}) {
    pipeline.drop_last = drop_last;
    pipeline.cache = CacheKind::ram;
    const auto reference = source(pipeline, 3, true);
    pipeline.cache = CacheKind::device;
    const auto made = source(pipeline, 3, true);
    EXPECT_EQ(reference->device_batches(at), nullptr) << "the host gathers";
    DeviceBatches* batches = made->device_batches(at);
    ASSERT_NE(batches, nullptr);
    ASSERT_EQ(made->device_batches(at), batches);
    for (const std::int64_t epoch : {0, 1}) {
      for (const std::int64_t first : {0, 2}) {
        reference->start(epoch, first);
        std::vector<HostBatch> expected = rest_of_epoch(*reference, at), seen;
        made->start(epoch, first);
        EXPECT_EQ(batches->left(), 6 - first);
        for (const std::int64_t count : {3, 1}) {
          for (std::int64_t i = 0; i < count; ++i) {
            seen.push_back(copy_batch(batches->make(at, i, count), at.stream));
            seen.back().index = expected[seen.size() - 1].index;
          }
          batches->advance(count);
        }
        for (HostBatch& batch : rest_of_epoch(*made, at)) seen.push_back(batch);
        EXPECT_EQ(seen, expected);
      }
    }
  }
}

// Of a share those that `next` returns of it, in launches, then one by one: the short last batch of 7 is the share's.
TEST_P(LoaderTest, TheDeviceMakesAShare) {
  PipelineOptions pipeline = full();
  const Context at = context(PrecisionKind::mixed_float16);
  pipeline.cache = CacheKind::device;
  const auto made = source(pipeline, 3, true);
  made->set_share(1, 2, 4);
  DeviceBatches* batches = made->device_batches(at);
  ASSERT_NE(batches, nullptr);
  EXPECT_THROW(made->set_share(0, 1, 4), Error) << "too late";
  pipeline.cache = CacheKind::ram;
  const auto reference = source(pipeline, 3, true);
  for (const std::int64_t epoch : {0, 1}) {
    const std::vector<HostBatch> whole = whole_epoch(*reference, at, epoch);
    const std::vector<HostBatch> expected = {whole[1], whole[2], whole[5], whole[6]};
    for (const std::int64_t launched : {0, 2, 3}) {
      std::vector<HostBatch> seen;
      made->start(epoch, 0);
      EXPECT_EQ(batches->left(), 3) << "full ones";
      for (std::int64_t i = 0; i < launched; ++i) {
        seen.push_back(copy_batch(batches->make(at, i, launched), at.stream));
        seen.back().index = expected[static_cast<std::size_t>(i)].index;
      }
      batches->advance(launched);
      for (HostBatch& batch : rest_of_epoch(*made, at)) seen.push_back(batch);
      EXPECT_EQ(seen, expected) << launched << " of a launch";
    }
    made->start(epoch, 4);
    EXPECT_EQ(rest_of_epoch(*made, at), (std::vector<HostBatch>{whole[5], whole[6]}));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, LoaderTest, ::testing::Values(Device::cpu(), Device::cuda(0)),
                         [](const auto& info) { return std::string(info.param.is_cpu() ? "cpu" : "cuda"); });

}  // namespace
}  // namespace bantam::loader_test
