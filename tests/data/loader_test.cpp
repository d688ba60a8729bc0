// The loader on every device: each stage by hand, and the same batches for any workers, depth, cache and place of
// start.
#include "bantam/data/loader.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <stdexcept>

#include "bantam/base/error.h"
#include "bantam/engine/device_batches.h"
#include "tests/data/support.h"

namespace bantam {
namespace {

using testing::copy_batch;
using testing::HostBatch;
using testing::message_of;
using testing::ramp_dataset;
using testing::ramp_label;
using testing::ramp_pixel;
using testing::rest_of_epoch;
using testing::whole_epoch;

constexpr std::int64_t kImages = 53;
constexpr std::int64_t kBatch = 8;
const Shape kShape = {4, 5, 3};

class LoaderTest : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (GetParam().is_cuda() && cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device: skipped";
    // One thread for kernels: OpenMP tells ThreadSanitizer nothing of its order, and this test is for the workers.
    runtime_ = std::make_unique<Runtime>(RuntimeOptions{.threads = 1});
  }
  Context context(PrecisionKind precision = PrecisionKind::float32) {
    return Context::make(*runtime_, GetParam(), Precision{precision});
  }
  std::shared_ptr<const Dataset> dataset(std::int64_t size = kImages) { return ramp_dataset(*runtime_, size, kShape); }
  std::unique_ptr<ImageBatchSource> source(PipelineOptions pipeline, std::uint64_t seed = 1, bool staged = false) {
    LoaderOptions options{.pipeline = std::move(pipeline), .device = GetParam(), .seed = seed, .staged_on_cpu = staged};
    return std::make_unique<ImageBatchSource>(*runtime_, dataset(), std::move(options));
  }

  std::unique_ptr<Runtime> runtime_;
};

PipelineOptions plain() {
  PipelineOptions options;
  options.batch_size = kBatch;
  return options;
}

/// Every stage at once.
PipelineOptions full() {
  PipelineOptions options = plain();
  options.shuffle.emplace();
  options.normalize = {.scale = 1.0 / 255, .mean = {0.1, 0.2, 0.3}, .std = {0.5, 0.6, 0.7}};
  options.random_crop = RandomCropOptions{.padding = 2, .mode = kernels::PadMode::reflect};
  options.random_flip = true;
  return options;
}

PipelineOptions with_workers(PipelineOptions options, std::optional<std::int64_t> workers,
                             std::optional<std::int64_t> depth) {
  options.prefetch = {.depth = depth, .workers = workers};
  return options;
}

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
  EXPECT_EQ(image, kImages);
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
    options.random_crop = RandomCropOptions{.height = 3, .width = 5, .padding = 2, .mode = mode};
    options.random_flip = true;
    const BatchPlanner planner(options, batch_shape(options, kShape), 1);
    std::vector<std::int32_t> order(kImages);
    std::iota(order.begin(), order.end(), 0);
    std::vector<kernels::ImagePlacement> placements(kImages);
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
    EXPECT_EQ(image, static_cast<std::size_t>(kImages));
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
      while (image < kImages && static_cast<float>(ramp_pixel(image, 0)) != batch.images[i * 60]) ++image;
      seen.push_back(image);
      EXPECT_EQ(batch.labels[i], ramp_label(image, 3));
    }
  }
  EXPECT_FALSE(std::is_sorted(seen.begin(), seen.end()));
  std::sort(seen.begin(), seen.end());
  ASSERT_EQ(seen.size(), static_cast<std::size_t>(kImages));
  for (std::int64_t i = 0; i < kImages; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
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
      for (const CacheKind cache : {CacheKind::ram, CacheKind::device}) {
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
      EXPECT_EQ(batch.images.dtype(), half ? DType::float16 : DType::float32);
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

/// An epoch tried to its end, however often `next` throws.
struct TriedEpoch {
  std::vector<HostBatch> batches;
  std::vector<std::string> failures;
};

TriedEpoch tried_epoch(ImageBatchSource& source, const Context& context) {
  TriedEpoch tried;
  source.start(0);
  for (;;) {
    try {
      Batch batch;
      if (!source.next(context, batch)) return tried;
      tried.batches.push_back(testing::copy_batch(batch, context.stream));
    } catch (const std::runtime_error& error) {
      tried.failures.emplace_back(error.what());
    }
  }
}

// Wherever handing out work fails, no batch is lost and none takes another's place.
TEST_P(LoaderTest, FailuresAheadLeaveBatchesAsTheyAre) {
  const auto reference = whole_epoch(*source(full()), context(), 0);
  for (const bool staged : {false, true}) {
    for (const LoaderEvent event : {LoaderEvent::grow, LoaderEvent::submit}) {
      for (const int at : {0, 1, 2, 4, 6}) {
        int seen = 0;
        LoaderOptions options{
            .pipeline = with_workers(full(), 2, 3), .device = GetParam(), .seed = 1, .staged_on_cpu = staged};
        options.probe = [&](LoaderEvent now) {  // of the source's own thread: the workers' event returns at once
          if (now == event && seen++ == at) throw std::runtime_error("nothing left");
        };
        ImageBatchSource one(*runtime_, dataset(), options);
        const TriedEpoch tried = tried_epoch(one, context());
        EXPECT_GT(seen, at);
        EXPECT_LE(tried.failures.size(), event == LoaderEvent::grow ? 0u : 1u);
        EXPECT_EQ(tried.batches, reference) << "staged " << staged << ", failure " << at;
      }
    }
  }
}

TEST_P(LoaderTest, WithoutThreadsNextMakesTheBatches) {
  const auto reference = whole_epoch(*source(full()), context(), 0);
  LoaderOptions options{.pipeline = with_workers(full(), 2, 3), .device = GetParam(), .seed = 1};
  std::atomic<int> worked{0};
  options.probe = [&](LoaderEvent now) {
    if (now == LoaderEvent::grow) throw std::runtime_error("no more threads");
    if (now == LoaderEvent::work) ++worked;
  };
  ImageBatchSource one(*runtime_, dataset(), options);
  EXPECT_EQ(whole_epoch(one, context(), 0), reference);
  EXPECT_EQ(worked, 0);
}

TEST_P(LoaderTest, AWorkersFailureComesOutOfNextWhichGoesOn) {
  const auto reference = whole_epoch(*source(full()), context(), 0);
  for (const bool staged : {false, true}) {
    for (const int at : {0, 3, 6}) {
      std::atomic<int> seen{0};
      LoaderOptions options{
          .pipeline = with_workers(full(), 2, 3), .device = GetParam(), .seed = 1, .staged_on_cpu = staged};
      options.probe = [&](LoaderEvent now) {
        if (now == LoaderEvent::work && seen++ == at) throw std::runtime_error("broken image");
      };
      ImageBatchSource one(*runtime_, dataset(), options);
      const TriedEpoch tried = tried_epoch(one, context());
      EXPECT_EQ(tried.failures, std::vector<std::string>{"broken image"});
      EXPECT_EQ(tried.batches, reference) << "staged " << staged << ", failure " << at;
    }
  }
}

/// Takes all memory that an allocator holds or may still get, until the end of the scope.
class NoMemoryLeft {
 public:
  NoMemoryLeft(BfcAllocator& allocator, Stream stream) : allocator_(allocator), stream_(stream) {
    allocator.trim();
    allocator.set_limit(allocator.stats().pool_bytes);
    for (std::size_t piece = 1u << 24; piece >= BfcAllocator::kGranule; piece /= 2) {
      try {
        for (;;) taken_.push_back(allocator.allocate(piece, stream, {Category::other, "test"}));
      } catch (const OutOfMemory&) {
      }
    }
  }
  ~NoMemoryLeft() {
    for (void* address : taken_) allocator_.free(address, stream_);
    allocator_.set_limit(0);
  }

 private:
  BfcAllocator& allocator_;
  Stream stream_;
  std::vector<void*> taken_;
};

// Memory that runs out in `next` leaves the source where it was.
TEST_P(LoaderTest, OutOfMemoryCanBeTriedAgain) {
  for (const std::int64_t workers : {0, 2}) {
    auto one = source(with_workers(full(), workers, 2));
    const auto reference = whole_epoch(*one, context(), 0);
    one->start(0);
    std::vector<Batch> kept;  // their memory does not come back, so that later batches need more
    auto none_left = std::make_unique<NoMemoryLeft>(runtime_->allocator(GetParam()), context().stream);
    int failures = 0;
    for (;;) {
      try {
        Batch batch;
        if (!one->next(context(), batch)) break;
        kept.push_back(batch);
      } catch (const OutOfMemory&) {
        ++failures;
        none_left.reset();
      }
    }
    EXPECT_EQ(failures, 1);
    ASSERT_EQ(kept.size(), reference.size());
    for (std::size_t i = 0; i < kept.size(); ++i)
      EXPECT_EQ(testing::copy_batch(kept[i], context().stream), reference[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, LoaderTest, ::testing::Values(Device::cpu(), Device::cuda(0)),
                         [](const auto& info) { return std::string(info.param.is_cpu() ? "cpu" : "cuda"); });

class LoaderParity : public ::testing::TestWithParam<Device> {};

// The kernels multiply and add in the same two roundings everywhere, so batches are the same bits on both devices.
TEST_P(LoaderParity, BatchesHaveTheCpusBits) {
  if (GetParam().is_cuda() && cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device: skipped";
  Runtime runtime({.threads = 2});
  const auto set = ramp_dataset(runtime, 201, {32, 32, 3});
  for (const auto kind : {PrecisionKind::float32, PrecisionKind::mixed_float16, PrecisionKind::mixed_bfloat16}) {
    for (const CacheKind cache : {CacheKind::ram, CacheKind::device}) {
      PipelineOptions options = with_workers(full(), 3, 3);
      options.cache = cache;
      options.batch_size = 32;
      const auto epoch = [&](Device device) {
        ImageBatchSource source(runtime, set, {.pipeline = options, .device = device, .seed = 8});
        return whole_epoch(source, Context::make(runtime, device, Precision{kind}), 2);
      };
      EXPECT_EQ(epoch(GetParam()), epoch(Device::cpu()));
    }
  }
}

/// Keeps a device busy: some milliseconds of zeroing, queued on a stream.
class BusyStream {
 public:
  BusyStream(BfcAllocator& allocator, Stream stream)
      : allocator_(allocator), stream_(stream), at_(allocator.allocate(kBytes, stream, {Category::other, "test"})) {}
  ~BusyStream() { allocator_.free(at_, stream_); }
  BusyStream(const BusyStream&) = delete;
  BusyStream& operator=(const BusyStream&) = delete;
  /// 16 GiB of writes: about 5 ms where memory takes 3 TB/s.
  void keep_busy() {
    for (int i = 0; i < 64; ++i) zero_bytes(at_, kBytes, stream_);
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{1} << 28;
  BfcAllocator& allocator_;
  Stream stream_;
  void* at_;
};

// The step lags behind the host, so that batches wait for their copies, buffers and kernels; nothing is compared before
// the end, as that would let the step catch up.
TEST_P(LoaderParity, AStepThatLagsChangesNoBatch) {
  if (GetParam().is_cuda() && cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device: skipped";
  Runtime runtime({.threads = 2});
  const auto set = ramp_dataset(runtime, 15 * 32 + 9, {32, 32, 3});
  const Context context = Context::make(runtime, GetParam());
  BusyStream busy(runtime.allocator(GetParam()), context.stream);
  for (const CacheKind cache : {CacheKind::ram, CacheKind::device}) {
    PipelineOptions options = with_workers(full(), 3, 3);
    options.cache = cache;
    options.batch_size = 32;
    ImageBatchSource reference(runtime, set, {.pipeline = options, .device = Device::cpu(), .seed = 8});
    ImageBatchSource source(runtime, set, {.pipeline = options, .device = GetParam(), .seed = 8});
    std::vector<Batch> kept;
    const auto take = [&](int most) {
      for (int i = 0; i < most; ++i) {
        busy.keep_busy();
        Batch batch;
        if (!source.next(context, batch)) return;
        kept.push_back(batch);
      }
    };
    source.start(1);
    take(5);  // and the epoch is left in its middle, with copies under way
    source.start(2, 1);
    take(100);
    const Context on_cpu = Context::make(runtime, Device::cpu());
    std::vector<HostBatch> expected = whole_epoch(reference, on_cpu, 1);
    expected.resize(5);
    reference.start(2, 1);
    for (HostBatch& batch : rest_of_epoch(reference, on_cpu)) expected.push_back(std::move(batch));
    ASSERT_EQ(kept.size(), expected.size());
    for (std::size_t i = 0; i < kept.size(); ++i)
      EXPECT_EQ(testing::copy_batch(kept[i], context.stream), expected[i]) << "batch " << i;
  }
}

// Batches that the device makes are those that `next` gives, by launches of any size, from any place on.
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

INSTANTIATE_TEST_SUITE_P(Devices, LoaderParity, ::testing::Values(Device::cuda(0)),
                         [](const auto&) { return std::string("cuda"); });

}  // namespace
}  // namespace bantam
