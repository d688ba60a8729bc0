// The loader on a GPU: its batches have the CPU's bits, also where the step lags behind the host.
#include "tests/data/delivery/loader_fixture.h"

namespace bantam::loader_parity_test {
namespace {

using testing::HostBatch;
using testing::ramp_dataset;
using testing::rest_of_epoch;
using testing::whole_epoch;

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

// More channels than are resampled at once.
TEST_P(LoaderParity, ManyChannelsHaveTheCpusBits) {
  if (GetParam().is_cuda() && cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device: skipped";
  Runtime runtime({.threads = 2});
  const auto set = ramp_dataset(runtime, 101, {30, 35, 6});
  for (const CacheKind cache : {CacheKind::ram, CacheKind::off, CacheKind::device}) {
    PipelineOptions options = with_workers(full(), 3, 3);
    options.cache = cache;
    options.batch_size = 32;
    options.normalize = {.scale = 1.0 / 255};
    options.augmentations.insert(options.augmentations.begin(), resize({.height = 24, .width = 28}));
    const auto epoch = [&](Device device) {
      ImageBatchSource source(runtime, set, {.pipeline = options, .device = device, .seed = 8});
      return whole_epoch(source, Context::make(runtime, device), 2);
    };
    EXPECT_EQ(epoch(GetParam()), epoch(Device::cpu())) << static_cast<int>(cache);
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

INSTANTIATE_TEST_SUITE_P(Devices, LoaderParity, ::testing::Values(Device::cuda(0)),
                         [](const auto&) { return std::string("cuda"); });

}  // namespace
}  // namespace bantam::loader_parity_test
