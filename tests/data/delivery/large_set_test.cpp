// A set far larger than the CPU's limit trains with `cache: off`, within the limit by the allocator's count and by the
// process' resident size.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "bantam/base/error.h"
#include "bantam/data/augment/built_in.h"
#include "bantam/data/delivery/data_config.h"
#include "bantam/engine/train/trainer.h"
#include "bantam/memory/device/device.h"
#include "tests/cpu_seconds.h"
#include "tests/data/support.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::large_set_test {
namespace {

const Shape kImage = {32, 32, 3};
constexpr std::int64_t kSamples = 100'000;          // 293 MiB
constexpr std::uint64_t kLimit = 24u << 20;         // of the pool: weights, activations, batches made ahead
constexpr std::uint64_t kResidentSlack = 8u << 20;  // the order of an epoch, threads, their stacks and scratch, code

class Ramps : public SampleReader {
 public:
  DatasetFacts facts() const override { return {kSamples, kImage, {"a", "b", "c"}}; }
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
    for (std::size_t p = 0; p < fields[0].size(); ++p)
      fields[0][p] = std::byte{testing::ramp_pixel(index, static_cast<std::int64_t>(p))};
    const std::int32_t label = testing::ramp_label(index, 3);
    std::memcpy(fields[1].data(), &label, sizeof label);
  }
};

PipelineOptions pipeline(CacheKind cache) {
  PipelineOptions options{.cache = cache,
                          .normalize = {.scale = 1.0 / 255},
                          .augmentations = {random_flip()},
                          .batch_size = 200,
                          .prefetch = {.depth = 3, .workers = 2}};
  options.shuffle.emplace();
  return options;
}

TEST(LargeSet, TrainsWithinTheLimitWithoutACache) {
  Runtime runtime({.threads = 2, .limits = {{"cpu", kLimit}}});
  const auto open = [&](CacheKind cache) {
    return std::make_unique<ImageBatchSource>(
        runtime, std::make_shared<Ramps>(),
        LoaderOptions{.pipeline = pipeline(cache), .device = Device::cpu(), .seed = 5});
  };
  EXPECT_THROW((void)open(CacheKind::ram), OutOfMemory);
  Graph graph(kImage);
  graph.add("conv", conv2d({.filters = 4, .kernel = {3, 3}, .stride = {2, 2}}));
  graph.add(flatten());
  graph.add("head", dense({.units = 3}));
  Model model(runtime, Device::cpu(), graph, {.seed = 7});
  Optimizer optimizer(model, {.rule = adam({.learning_rate = 1e-3f})});
  TrainingStep step(model, optimizer, {});
  const ProcessMeter meter(Device::cpu());
  const std::uint64_t before = meter.read().bytes;
  const auto source = open(CacheKind::off);
  const TrainResult result = Trainer(step, *source, nullptr, {.epochs = 1}).run();
  EXPECT_EQ(result.update, 0);
  EXPECT_EQ(result.epoch, 1);
  const MemoryStats stats = runtime.allocator(Device::cpu()).stats();
  EXPECT_LE(stats.peak_bytes, kLimit);
  EXPECT_LE(stats.pool_bytes, kLimit);
  // Measured: 17 MiB more than before. A sanitizer's own memory is resident, too.
  if (!testing::kSanitized) {
    EXPECT_LE(meter.read().peak_bytes, before + kLimit + kResidentSlack) << "before: " << before;
  }
}

/// An array of `samples` images of 128 x 128 RGB without values, which need no room on the disk, and their labels.
void write_arrays(const std::filesystem::path& folder, const std::string& name, std::int64_t samples) {
  const auto header = [](const std::string& type, const std::string& shape) {
    std::string text = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
    text.resize(117, ' ');
    return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + text + "\n";
  };
  const auto write = [&](const std::string& file, const std::string& begin, std::int64_t bytes) {
    std::ofstream(folder / file, std::ios::binary) << begin;
    std::filesystem::resize_file(folder / file, begin.size() + static_cast<std::uintmax_t>(bytes));
  };
  const std::string count = std::to_string(samples);
  write(name + "_images.npy", header("|u1", count + ", 128, 128, 3"), samples * 128 * 128 * 3);
  write(name + "_labels.npy", header("<i4", count + ","), samples * 4);
}

/// The most resident bytes of this process, looked at every 10 ms.
class ResidentPeak {
 public:
  ResidentPeak()
      : thread_([this] {
          while (!ended_) {
            peak_ = std::max(peak_, meter_.read().bytes);
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
          }
        }) {}
  std::uint64_t end() {
    ended_ = true;
    thread_.join();
    return peak_;
  }

 private:
  ProcessMeter meter_{Device::cpu()};
  std::uint64_t peak_ = 0;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

// 4 GB of images under a limit of 512 MiB: `cache: auto` keeps them where they are.
TEST(LargeSet, FourGigabytesTrainUnderHalfAGigabyte) {
  constexpr std::uint64_t kHalf = 512u << 20, kSlack = 64u << 20;
  const testing::TemporaryFolder folder;
  write_arrays(folder.path(), "train", 82'000);  // 4.03 GB
  write_arrays(folder.path(), "test", 400);
  const std::string at = folder.path().string();
  DataOptions options = read_data_config(
      ConfigDocument::parse("data:\n  format: npy\n  train: {images: " + at + "/train_images.npy, labels: " + at +
                                "/train_labels.npy}\n  test: {images: " + at + "/test_images.npy, labels: " + at +
                                "/test_labels.npy}\n  classes: [a, b, c]\n"
                                "  pipeline: [cache: auto, shuffle, batch: {size: 200}, prefetch]\n",
                            "t.yaml")
          .map()
          .node("data"));
  decide_cache(options, {.device_bytes = 0, .host_bytes = kHalf / 4 * 3});
  EXPECT_EQ(options.pipeline.cache, CacheKind::off);
  ResidentPeak resident;
  Runtime runtime({.threads = 2, .limits = {{"cpu", kHalf}}});
  Graph graph({128, 128, 3});
  graph.add("conv", conv2d({.filters = 4, .kernel = {3, 3}, .stride = {8, 8}}));
  graph.add(flatten());
  graph.add("head", dense({.units = 3}));
  Model model(runtime, Device::cpu(), graph, {.seed = 7});
  Optimizer optimizer(model, {.rule = adam({.learning_rate = 1e-3f})});
  TrainingStep step(model, optimizer, {});
  const OpenedData data = open_data(runtime, options, Device::cpu(), 5);
  const TrainResult result = Trainer(step, *data.train, data.validation.get(), {.epochs = 1}).run();
  EXPECT_EQ(result.epoch, 1);
  EXPECT_EQ(result.validation.samples, 400);
  const std::uint64_t peak = resident.end();
  RecordProperty("resident_mib", static_cast<int>(peak >> 20));
  EXPECT_LE(runtime.allocator(Device::cpu()).stats().pool_bytes, kHalf);
  if (!testing::kSanitized) {
    EXPECT_LE(peak, kHalf + kSlack);
  }
}

}  // namespace
}  // namespace bantam::large_set_test
