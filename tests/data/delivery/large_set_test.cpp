// A set far larger than the CPU's limit trains with `cache: off`, within the limit by the allocator's count and by the
// process' resident size.
#include <cstring>

#include "bantam/base/error.h"
#include "bantam/data/augment/built_in.h"
#include "bantam/engine/train/trainer.h"
#include "bantam/memory/device/device.h"
#include "tests/cpu_seconds.h"
#include "tests/data/support.h"
#include "tests/engine/engine_fixture.h"

namespace bantam {
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
  Optimizer optimizer(model, {.learning_rate = 1e-3f});
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

}  // namespace
}  // namespace bantam
