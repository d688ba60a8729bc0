// Everything is released: 1,000 times an engine is made, trains and is destroyed in one process, on each device.
// Neither the number of live allocations nor the process' memory nor the device's grows.
#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/public/counted_new.h"
#include "tests/public/small_training.h"

namespace bantam::cycles_test {
namespace {

constexpr int kCycles = 1000, kWarmUp = 20;

/// Bytes of this process in memory.
std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

/// Makes an engine, trains two updates, predicts, and destroys all of it.
std::vector<float> cycle(Device device) {
  Runtime runtime;
  std::vector<float> weights = testing::train_small(runtime, device, 2);
  Model model(runtime, device, testing::small_network(), {.seed = 1});
  const Context context = model.context(Pass::evaluate);
  to_host_floats(model.forward(context, testing::small_batch(context, 2).at(kImages)), context.stream);
  return weights;
}

TEST(Cycles, HostMemoryDoesNotGrow) {
  const std::vector<float> first = cycle(Device::cpu());
  for (int i = 1; i < kWarmUp; ++i) cycle(Device::cpu());
  const std::int64_t live = testing::new_counters().live;
  [[maybe_unused]] const std::uint64_t resident = resident_bytes();
  for (int i = kWarmUp; i < kCycles; ++i) ASSERT_EQ(cycle(Device::cpu()), first) << "cycle " << i;
  EXPECT_EQ(testing::new_counters().live, live) << "allocations of C++ that nobody freed";
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // One leaked tensor a cycle (2 KiB) would be 2 MiB. malloc's own arenas may settle by a few pages.
  EXPECT_LT(resident_bytes(), resident + (1u << 20)) << "bytes of the process, after " << kCycles << " cycles";
#endif
}

TEST(Cycles, WholeRunsLeaveNothing) {
  const testing::ScratchPath folder("cycles");
  const auto run_once = [&] {
    const run::Config config = run::Config::from_text(testing::kSmallRun, "cycles.yaml");
    return run::train(config, {.threads = 2, .folder = folder.path(), .overwrite = true}).result.updates;
  };
  for (int i = 0; i < 3; ++i) ASSERT_EQ(run_once(), 8);
  const std::int64_t live = testing::new_counters().live;
  for (int i = 0; i < 20; ++i) ASSERT_EQ(run_once(), 8);
  EXPECT_EQ(testing::new_counters().live, live);
}

/// Bytes by which the card has less after so many cycles. The driver's own tables take a page of it (2 MiB) some time
/// in the first ones.
std::int64_t growth_of_card(Device device, int cycles, const std::function<void()>& cycle) {
  for (int i = 0; i < kCycles / 2; ++i) cycle();
  const std::uint64_t free = device_info(device).free_bytes;
  for (int i = 0; i < cycles; ++i) cycle();
  return static_cast<std::int64_t>(free) - static_cast<std::int64_t>(device_info(device).free_bytes);
}

TEST(Cycles, DeviceMemoryDoesNotGrow_cuda) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device: skipped";
  Graph graph({8, 8, 2});
  graph.add("depthwise", depthwise_conv2d({.padding = Padding::same()}));
  graph.add("norm", batch_norm({.activation = {Activation::relu}}));
  graph.add("flat", flatten());
  graph.add("head", dense({.units = 3}));
  EXPECT_LE(growth_of_card(Device::cuda(), 2 * kCycles,
                           [&] {
                             Runtime runtime;
                             (void)testing::train_network(runtime, Device::cuda(), graph, 2, 1);
                           }),
            0);
}

/// cudnnCreate and cudnnDestroy alone, 800 times, leave 2 MiB of the card taken (cuDNN 9.14).
TEST(Cycles, WithConvolutionsItGrowsByWhatHandlesOfCudnnLeave_cuda) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device: skipped";
  constexpr std::int64_t kHandle = 4 << 10, kPage = 2 << 20;
  const Device device = Device::cuda();
  for (int i = 0; i < kWarmUp; ++i) cycle(device);
  const std::int64_t live = testing::new_counters().live;
  EXPECT_LE(growth_of_card(device, kCycles, [&] { cycle(device); }), kCycles * kHandle + kPage);
  // A leak of one allocation a cycle would be 1,500. NVIDIA's libraries keep a few tables that grow with first uses.
  EXPECT_LT(testing::new_counters().live, live + 150);
}

}  // namespace
}  // namespace bantam::cycles_test
