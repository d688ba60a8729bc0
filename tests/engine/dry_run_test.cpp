// A dry run is the run: same bytes in use at the peak, same bytes held, same verdict under a limit.
#include "bantam/engine/dry_run.h"

#include "bantam/base/error.h"
#include "bantam/engine/trainer.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::testing {
namespace {

constexpr std::int64_t kSamples = 70, kHeldOut = 29;

DryRunOptions options(std::int64_t batch, std::uint64_t limit = 0) {
  DryRunOptions options{.accumulate = 2, .device = Device::cpu(), .limit_bytes = limit};
  options.open = [batch](Runtime&, Device) {
    return RunSources{std::make_unique<MemorySource>(Shape{8, 8, 3}, 5, kSamples, batch),
                      std::make_unique<MemorySource>(Shape{8, 8, 3}, 5, kHeldOut, batch)};
  };
  return options;
}

/// Two epochs for real.
DryRun train(std::int64_t batch, std::uint64_t limit = 0) {
  Runtime runtime({.threads = 2, .limits = {{"cpu", limit}}});
  DryRun result;
  try {
    const RunSources sources = options(batch).open(runtime, Device::cpu());
    Model model(runtime, Device::cpu(), small_network(), {});
    Optimizer optimizer(model, {});
    TrainingStep step(model, optimizer, {});
    Trainer(step, *sources.train, sources.validation.get(), {.epochs = 2, .accumulate = 2}).run();
  } catch (const OutOfMemory&) {
    result.fits = false;
  }
  const MemoryStats stats = runtime.allocator(Device::cpu()).stats();
  result.peak_bytes = stats.peak_bytes;
  result.peak_pool_bytes = stats.peak_pool_bytes;
  return result;
}

TEST(DryRun, TakesWhatTheRunTakes) {
  for (const std::int64_t batch : {1, 5, 16, 33, 70}) {
    const DryRun planned = dry_run(small_network(), options(batch)), measured = train(batch);
    EXPECT_EQ(planned.peak_bytes, measured.peak_bytes) << batch;
    EXPECT_EQ(planned.peak_pool_bytes, measured.peak_pool_bytes) << batch;
  }
}

TEST(DryRun, SaysWhatTheRunSaysUnderALimit) {
  const DryRun free = train(33);
  int refused = 0, done = 0;
  for (std::uint64_t limit = free.peak_bytes * 9 / 10; limit < free.peak_pool_bytes * 11 / 10;
       limit += free.peak_bytes / 23) {
    const DryRun planned = dry_run(small_network(), options(33, limit));
    EXPECT_EQ(planned.fits, train(33, limit).fits) << limit;
    (planned.fits ? done : refused) += 1;
  }
  EXPECT_GT(refused, 1);
  EXPECT_GT(done, 1);
}

TEST(DryRun, AsksForSources) { EXPECT_THROW((void)dry_run(small_network(), {}), Error); }

}  // namespace
}  // namespace bantam::testing
