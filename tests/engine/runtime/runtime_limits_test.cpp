// Limits of a Runtime: logical devices, limits that move while a model trains, and what a GPU's driver counts.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/engine/engine_fixture.h"
#include "tests/engine/message_of.h"

namespace bantam::testing::runtime_limits_test {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;

/// Losses and final weights of a few updates of a small network.
std::vector<float> train(Runtime& runtime, Device device, int updates) {
  Model model(runtime, device, small_network(), {.seed = 5});
  Optimizer optimizer(model, {.rule = adam({.learning_rate = 0.01f})});
  TrainingStep step(model, optimizer, {});
  const Context context = Context::make(runtime, device);
  std::vector<float> seen;
  for (int update = 0; update < updates; ++update) {
    step.step(make_batch(context, model.graph().input_shape(), 5, update * 8, 8));
    for (const Metrics& metrics : step.read_metrics()) seen.push_back(static_cast<float>(metrics.loss));
  }
  const std::vector<float> weights = to_host_floats(model.parameters().master(), runtime.stream(device));
  seen.insert(seen.end(), weights.begin(), weights.end());
  return seen;
}

class RuntimeLimitsTest : public EngineTest {
 protected:
  std::string name() const { return to_string(device()); }
  /// More than a process uses before it trains anything.
  std::uint64_t room() const { return device().is_cuda() ? 1024 * kMiB : 0; }
};
BANTAM_INSTANTIATE_ON_DEVICES(RuntimeLimitsTest);

TEST_P(RuntimeLimitsTest, ALogicalDeviceTrainsToTheSameBitsWithinItsShare) {
  Runtime plain({.threads = 2});
  const std::vector<float> expected = train(plain, device(), 6);
  Runtime split({.threads = 2, .logical = {{name(), {48 * kMiB, 32 * kMiB}}}});
  for (const int share : {1, 0}) {
    const Device logical = device().logical(share);
    EXPECT_EQ(train(split, logical, 6), expected) << to_string(logical);
    const MemoryStats stats = split.allocator(logical).stats();
    EXPECT_EQ(stats.limit_bytes, (share == 0 ? 48 : 32) * kMiB);
    EXPECT_LE(stats.peak_pool_bytes, stats.limit_bytes);
    EXPECT_GT(stats.peak_bytes, 0u);
  }
  EXPECT_NE(&split.allocator(device().logical(0)), &split.allocator(device().logical(1)));
  EXPECT_NE(split.stream(device().logical(0)).id, split.stream(device().logical(1)).id);
}

TEST_P(RuntimeLimitsTest, TensorsOfTwoSharesDoNotMix) {
  Runtime split({.threads = 1, .logical = {{name(), {8 * kMiB, 8 * kMiB}}}});
  const Context first = Context::make(split, device().logical(0)), second = Context::make(split, device().logical(1));
  const Tensor a = first.allocate({4}, DType::float32), b = second.allocate({4}, DType::float32);
  EXPECT_THROW(first.check_device("op", {&a, &b}), DeviceError);
}

TEST_P(RuntimeLimitsTest, SharesThatDoNotExistOrFitAreRefusedWithNumbers) {
  Runtime split({.threads = 1, .logical = {{name(), {8 * kMiB}}}});
  const std::string absent = message_of([&] { (void)split.allocator(device().logical(1)); });
  EXPECT_NE(absent.find(name() + " is split into 1"), std::string::npos) << absent;
  Runtime whole({.threads = 1});
  const std::string unsplit = message_of([&] { (void)whole.allocator(device().logical(0)); });
  EXPECT_NE(unsplit.find("is not split"), std::string::npos) << unsplit;
  const std::uint64_t card = device_info(device()).total_bytes;
  Runtime too_much({.threads = 1, .logical = {{name(), {card, kMiB}}}});
  const std::string refused = message_of([&] { (void)too_much.allocator(device().logical(0)); });
  EXPECT_NE(refused.find(name() + "/1"), std::string::npos) << refused;
  EXPECT_NE(refused.find(std::to_string(card) + " B"), std::string::npos) << refused;
  Runtime limited({.threads = 1, .limits = {{name(), room() + 8 * kMiB}}, .logical = {{name(), {room() + 9 * kMiB}}}});
  EXPECT_THROW((void)limited.allocator(device().logical(0)), OutOfMemory);
}

TEST_P(RuntimeLimitsTest, ASmallerLimitIsRefusedWithTheOneThatWouldDo) {
  Runtime runtime({.threads = 1, .limits = {{name(), room() + 8 * kMiB}}});
  runtime.require_pool(device(), kMiB);
  const std::string refused = message_of([&] { runtime.require_pool(device(), room() + 9 * kMiB); });
  EXPECT_NE(refused.find("is too small"), std::string::npos) << refused;
  if (device().is_cpu()) {
    EXPECT_NE(refused.find("needed at least 9.00 MiB"), std::string::npos) << refused;
  }
  EXPECT_NE(refused.find("Raise the limit (memory: limits, or Runtime::set_limit)."), std::string::npos) << refused;
  EXPECT_EQ(refused.find("largest holders"), std::string::npos) << "nothing is in use: " << refused;
  BfcAllocator& memory = runtime.allocator(device());
  const Stream stream = runtime.stream(device());
  void* held = memory.allocate(kMiB, stream, {Category::other, "mine"});
  const std::string beside = message_of([&] { runtime.require_pool(device(), room() + 9 * kMiB); });
  EXPECT_NE(beside.find("largest holders:\n    mine (other): 1.00 MiB"), std::string::npos) << beside;
  memory.free(held, stream);
}

TEST_P(RuntimeLimitsTest, LimitsThatMoveFromAnotherThreadDoNotChangeTheRun) {
  Runtime undisturbed({.threads = 2});
  const std::vector<float> expected = train(undisturbed, device(), 40);
  const std::uint64_t need = room() + undisturbed.allocator(device()).stats().peak_pool_bytes * 2;
  Runtime runtime({.threads = 2, .limits = {{name(), need * 2}}});
  (void)runtime.allocator(device());
  std::atomic<bool> stop{false};
  std::atomic<int> moved{0};
  std::thread mover([&] {
    for (std::uint64_t i = 1; !stop; ++i) {
      runtime.set_limit(device(), need + need * (i * 7 % 13) / 13);
      moved.fetch_add(1);
      const MemoryStats stats = runtime.allocator(device()).stats();
      EXPECT_LE(stats.pool_bytes, stats.limit_bytes);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  EXPECT_EQ(train(runtime, device(), 40), expected);
  stop = true;
  mover.join();
  EXPECT_GT(moved.load(), 1);
}

TEST_P(RuntimeLimitsTest, ReserveReservesThePoolOnceAndKeepsPeaksTrue) {
  Runtime runtime({.threads = 2});
  runtime.reserve(device(), 64 * kMiB);
  const MemoryStats reserved = runtime.allocator(device()).stats();
  EXPECT_GE(reserved.pool_bytes, 64 * kMiB);
  EXPECT_EQ(reserved.peak_bytes, 0u);
  (void)train(runtime, device(), 3);
  EXPECT_EQ(runtime.allocator(device()).stats().peak_pool_bytes, reserved.pool_bytes) << "nothing more was taken";
}

TEST_P(RuntimeLimitsTest, ReserveThatTheLimitRefusesSaysWhatItAllows) {
  Runtime runtime({.threads = 1, .logical = {{name(), {8 * kMiB}}}});
  const Device share = device().logical(0);
  const std::string refused = message_of([&] { runtime.reserve(share, 64 * kMiB); });
  EXPECT_NE(refused.find("does not allow a pool of 64.0 MiB (67108864 B) at once"), std::string::npos) << refused;
  EXPECT_NE(refused.find("its limit allows 8.00 MiB"), std::string::npos) << refused;
  EXPECT_EQ(runtime.allocator(share).stats().pool_bytes, 0u);
}

TEST_P(RuntimeLimitsTest, ReserveKeepsPeaksOfARunUnderWay) {
  Runtime runtime({.threads = 2});
  (void)train(runtime, device(), 2);
  const std::uint64_t peak = runtime.allocator(device()).stats().peak_bytes;
  ASSERT_GT(peak, 0u);
  runtime.reserve(device(), 64 * kMiB);
  EXPECT_EQ(runtime.allocator(device()).stats().peak_bytes, peak);
}

TEST_P(RuntimeLimitsTest, AReportDoesNotChangeTheAllocatorsOwnLimit) {
  Runtime runtime({.threads = 1});
  BfcAllocator& memory = runtime.allocator(device());
  memory.set_limit(4 * kMiB);
  EXPECT_EQ(runtime.memory_report(device()).stats.limit_bytes, 4 * kMiB);
  (void)runtime.memory_overhead(device());
  runtime.refresh_limit(device());
  EXPECT_EQ(memory.stats().limit_bytes, 4 * kMiB);
}

TEST_P(RuntimeLimitsTest, ABudgetOfAShareOutlivesChangesOfItsLimit) {
  const Device share = device().logical(0);
  Runtime runtime({.threads = 1, .logical = {{name(), {8 * kMiB}}}, .budgets = {{to_string(share), 2 * kMiB}}});
  EXPECT_EQ(runtime.allocator(share).stats().limit_bytes, 2 * kMiB);
  runtime.set_limit(share, 6 * kMiB);
  EXPECT_EQ(runtime.allocator(share).stats().limit_bytes, 2 * kMiB);
  EXPECT_THROW(runtime.require_pool(share, 4 * kMiB), OutOfMemory);
  runtime.require_pool(share, 2 * kMiB);
}

// On a GPU a second runtime's pool is overhead to the first, which nothing is left for. What only asks does not
// enforce, and what enforces loses nothing.
TEST_P(RuntimeLimitsTest, OverheadThatDoesNotFitIsNoErrorOfAReportAndLosesNoMetrics) {
  if (device().is_cpu()) GTEST_SKIP() << "on the CPU nothing is overhead";
  Runtime runtime({.threads = 1, .limits = {{name(), room()}}});
  Model model(runtime, device(), small_network(), {.seed = 5});
  Optimizer optimizer(model, {.rule = adam({.learning_rate = 0.01f})});
  TrainingStep step(model, optimizer, {});
  step.step(make_batch(Context::make(runtime, device()), model.graph().input_shape(), 5, 0, 8));
  BfcAllocator& memory = runtime.allocator(device());
  const Stream stream = runtime.stream(device());
  runtime.settle_limit(device());
  const MemoryStats stats = memory.stats();
  void* rest = memory.allocate(stats.limit_bytes - stats.pool_bytes - 4 * kMiB, stream, {Category::other, "rest"});
  Runtime other({.threads = 1});
  other.reserve(device(), 256 * kMiB);
  const MemoryReport report = runtime.memory_report(device());
  EXPECT_EQ(report.stats.limit_bytes, stats.limit_bytes);
  EXPECT_GE(total_bytes(runtime.memory_overhead(device())), 256 * kMiB);
  EXPECT_THROW((void)step.read_metrics(), OutOfMemory);
  memory.free(rest, stream);
  const std::vector<Metrics> metrics = step.read_metrics();
  ASSERT_EQ(metrics.size(), 1u);
  EXPECT_EQ(metrics.front().samples, 8);
}

TEST_P(RuntimeLimitsTest, TheDeviceCountsNoMoreThanTheLimit) {
  if (device().is_cpu()) GTEST_SKIP() << "on the CPU the pool alone is limited";
  const std::uint64_t limit = room();
  Runtime runtime({.threads = 2, .limits = {{name(), limit}}});
  (void)runtime.allocator(device());
  const std::vector<OverheadLine> lines = runtime.memory_overhead(device());
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.front().name, "CUDA context");
  EXPECT_GT(lines.front().bytes, 32 * kMiB);
  (void)train(runtime, device(), 5);
  runtime.settle_limit(device());
  const MemoryStats stats = runtime.allocator(device()).stats();
  void* rest = runtime.allocator(device()).allocate(stats.limit_bytes - stats.pool_bytes - 4 * kMiB,
                                                    runtime.stream(device()), {Category::other, "rest"});
  const ProcessMemory process = runtime.process_memory(device());
  EXPECT_LE(process.bytes, limit) << to_string(process.method);
  EXPECT_GE(process.bytes, limit - 32 * kMiB) << "the limit can be used: " << to_string(process.method);
  runtime.allocator(device()).free(rest, runtime.stream(device()));
}

TEST(RuntimeLimits, MetaAndCpuHaveNoOverhead) {
  Runtime runtime({.threads = 1, .limits = {{"meta(cuda:0)", 8 * kMiB}}});
  const Device meta = Device::meta_of(Device::cuda(0));
  EXPECT_EQ(runtime.allocator(meta).stats().limit_bytes, 8 * kMiB) << "a pool's limit";
  EXPECT_TRUE(runtime.memory_overhead(meta).empty());
  EXPECT_EQ(runtime.process_memory(meta).bytes, 0u);
  EXPECT_TRUE(runtime.memory_overhead(Device::cpu()).empty());
  EXPECT_GT(runtime.process_memory(Device::cpu()).bytes, kMiB);
}

}  // namespace
}  // namespace bantam::testing::runtime_limits_test
