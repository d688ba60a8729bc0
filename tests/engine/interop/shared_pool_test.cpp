// A pool for other libraries: its memory stands in the report, within the limit; PyTorch's functions use the pool that
// serves their device.
#include <thread>

#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/engine/interop/external_memory.h"
#include "bantam/engine/interop/pool_functions.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::testing::shared_pool_test {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;

/// A pool of its own, which a test closes.
class SharedPoolTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(bantam_pool_open(to_string(device()).c_str(), limit(), "torch", &pool_), BANTAM_POOL_OK)
        << bantam_pool_last_error();
  }
  void TearDown() override {
    if (pool_ != nullptr) {
      EXPECT_EQ(bantam_pool_close(pool_), BANTAM_POOL_OK) << bantam_pool_last_error();
    }
  }
  /// On a GPU of the process, which has a context; on the CPU of the pool.
  std::uint64_t limit() const { return (device().is_cuda() ? 1024 : 16) * kMiB; }
  /// More than the pool may have.
  std::size_t too_much() const { return limit() + kMiB; }
  /// The number by which PyTorch's functions know the device.
  int number() const { return device().is_cuda() ? 0 : -1; }
  nlohmann::json report() const {
    char* const text = bantam_pool_report(pool_, 1);
    nlohmann::json json = nlohmann::json::parse(text);
    bantam_pool_free_text(text);
    return json;
  }

  bantam_pool* pool_ = nullptr;
};
BANTAM_INSTANTIATE_ON_DEVICES(SharedPoolTest);

TEST_P(SharedPoolTest, ItsMemoryStandsInTheReportUnderItsName) {
  void* const a = bantam_pool_allocate(pool_, 1000, nullptr);
  void* const b = bantam_pool_allocate(pool_, kMiB, nullptr);
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b) % 256, 0u);
  const nlohmann::json now = report();
  EXPECT_EQ(now["device"], to_string(device()));
  EXPECT_EQ(now["in_use_bytes"], kMiB + 1024);
  EXPECT_EQ(now["holders"],
            nlohmann::json::parse(R"([{"layer": "torch", "category": "other", "bytes": 1049600, "allocations": 2}])"));
  char* const text = bantam_pool_report(pool_, 0);
  EXPECT_NE(std::string(text).find("torch"), std::string::npos);
  bantam_pool_free_text(text);
  EXPECT_EQ(bantam_pool_free(pool_, a), BANTAM_POOL_OK);
  EXPECT_EQ(bantam_pool_free(pool_, b), BANTAM_POOL_OK);
  EXPECT_EQ(report()["in_use_bytes"], 0);
  EXPECT_GT(bantam_pool_trim(pool_), 0u);
  EXPECT_EQ(report()["held_bytes"], 0);
}

TEST_P(SharedPoolTest, ItsLimitIsNotPassedAndCanMove) {
  EXPECT_EQ(bantam_pool_allocate(pool_, too_much(), nullptr), nullptr);
  EXPECT_NE(std::string(bantam_pool_last_error()).find("limit"), std::string::npos) << bantam_pool_last_error();
  void* const a = bantam_pool_allocate(pool_, 8 * kMiB, nullptr);
  ASSERT_NE(a, nullptr) << bantam_pool_last_error();
  EXPECT_EQ(bantam_pool_set_limit(pool_, 4 * kMiB), BANTAM_POOL_OUT_OF_MEMORY);
  EXPECT_EQ(bantam_pool_set_limit(pool_, 2 * limit()), BANTAM_POOL_OK);
  EXPECT_EQ(bantam_pool_free(pool_, a), BANTAM_POOL_OK);
}

TEST_P(SharedPoolTest, ReservationsOfOtherLibrariesCount) {
  ASSERT_EQ(bantam_pool_reserve_for(pool_, "cuFFT", 12 * kMiB), BANTAM_POOL_OK) << bantam_pool_last_error();
  const nlohmann::json lines = report()["overhead"];
  EXPECT_TRUE(std::ranges::any_of(lines, [](const nlohmann::json& line) {
    return line["name"] == "cuFFT" && line["bytes"] == 12 * kMiB;
  })) << lines;
  if (device().is_cpu()) {
    EXPECT_EQ(bantam_pool_allocate(pool_, 8 * kMiB, nullptr), nullptr) << "16 - 12 are left";
  }
  EXPECT_EQ(bantam_pool_reserve_for(pool_, "cuFFT", 2 * limit()), BANTAM_POOL_OUT_OF_MEMORY);
  EXPECT_EQ(bantam_pool_reserve_for(pool_, "cuFFT", 0), BANTAM_POOL_OK);
  void* const a = bantam_pool_allocate(pool_, 8 * kMiB, nullptr);
  EXPECT_NE(a, nullptr);
  EXPECT_EQ(bantam_pool_free(pool_, a), BANTAM_POOL_OK);
}

TEST_P(SharedPoolTest, AMemoryBlockIsFreedAfterEveryStreamThatUsesIt) {
  const OwnedStream first(device()), second(device());
  void* const a = bantam_pool_allocate(pool_, kMiB, first.get().handle);
  ASSERT_NE(a, nullptr) << bantam_pool_last_error();
  EXPECT_EQ(bantam_pool_use(pool_, a, second.get().handle), BANTAM_POOL_OK);
  EXPECT_EQ(bantam_pool_use(pool_, a, second.get().handle), BANTAM_POOL_OK);
  EXPECT_EQ(bantam_pool_free(pool_, a), BANTAM_POOL_OK) << bantam_pool_last_error();
  EXPECT_EQ(bantam_pool_use(pool_, a, second.get().handle), BANTAM_POOL_ERROR);
  synchronize_device(device());
  bantam_pool_trim(pool_);  // the allocator forgets streams that end with this test
}

TEST_P(SharedPoolTest, PyTorchsFunctionsUseThePoolThatServes) {
  EXPECT_THROW((void)bantam_torch_alloc(256, number(), nullptr), DeviceError) << "none serves yet";
  ASSERT_EQ(bantam_pool_serve(pool_), BANTAM_POOL_OK);
  void* const a = bantam_torch_alloc(512, number(), nullptr);
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(bantam_torch_alloc(0, number(), nullptr), nullptr);
  EXPECT_EQ(report()["in_use_bytes"], 512);
  bantam_torch_record_stream(a, nullptr);
  EXPECT_THROW((void)bantam_torch_alloc(too_much(), number(), nullptr), OutOfMemory);

  bantam_pool* second = nullptr;
  ASSERT_EQ(bantam_pool_open(to_string(device()).c_str(), 0, "second", &second), BANTAM_POOL_OK);
  EXPECT_EQ(bantam_pool_serve(second), BANTAM_POOL_IN_USE) << "its memory would come back to another pool";
  EXPECT_EQ(bantam_pool_close(pool_), BANTAM_POOL_IN_USE);
  EXPECT_STREQ(bantam_pool_last_error(), "1 allocations of the pool are still in use");

  bantam_torch_free(a, 512, number(), nullptr);
  bantam_torch_free(nullptr, 0, number(), nullptr);
  EXPECT_EQ(bantam_pool_serve(second), BANTAM_POOL_OK);
  EXPECT_EQ(bantam_pool_close(second), BANTAM_POOL_OK);
  EXPECT_THROW((void)bantam_torch_alloc(256, number(), nullptr), DeviceError) << "a closed pool serves no more";
}

TEST_P(SharedPoolTest, ARuntimesPoolIsSharedWithinItsLimit) {
  const auto own =
      std::make_shared<Runtime>(RuntimeOptions{.threads = 1, .budgets = {{to_string(device()), 16 * kMiB}}});
  const Context ctx = Context::make(*own, device());
  const Tensor ours = ctx.allocate({static_cast<std::int64_t>(6 * kMiB)}, DType::uint8);
  bantam_pool* const shared = share_pool(own, device(), "guest");
  void* const theirs = bantam_pool_allocate(shared, 6 * kMiB, nullptr);
  ASSERT_NE(theirs, nullptr) << bantam_pool_last_error();
  EXPECT_EQ(bantam_pool_allocate(shared, 6 * kMiB, nullptr), nullptr) << "16 are for both";
  const MemoryReport report = own->memory_report(device());
  EXPECT_EQ(report.stats.in_use_bytes, 12 * kMiB);
  EXPECT_TRUE(std::ranges::any_of(
      report.holders, [](const Holder& holder) { return holder.owner == "guest" && holder.bytes == 6 * kMiB; }));
  EXPECT_EQ(bantam_pool_free(shared, theirs), BANTAM_POOL_OK);
  EXPECT_EQ(bantam_pool_close(shared), BANTAM_POOL_OK);
}

TEST_P(SharedPoolTest, ThreadsAllocateAndFreeAtOnce) {
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (std::size_t i = 0; i < 500; ++i) {
        void* const address = bantam_pool_allocate(pool_, 256 * (1 + (i * 7 + thread) % 64), nullptr);
        EXPECT_NE(address, nullptr);
        EXPECT_EQ(bantam_pool_free(pool_, address), BANTAM_POOL_OK);
      }
    });
  threads.clear();
  EXPECT_EQ(report()["in_use_bytes"], 0);
}

TEST(PoolFunctionsTest, GraphsOfPyTorchAreRefused) { EXPECT_THROW(bantam_torch_refuse_graph(), Error); }

TEST(PoolFunctionsTest, BadArgumentsAreRefusedWithAMessage) {
  bantam_pool* pool = nullptr;
  EXPECT_EQ(bantam_pool_open("gpu", 0, "x", &pool), BANTAM_POOL_ERROR);
  EXPECT_NE(std::string(bantam_pool_last_error()).find("gpu"), std::string::npos);
  EXPECT_EQ(bantam_pool_open("cpu", 0, "x", nullptr), BANTAM_POOL_ERROR);
  EXPECT_STREQ(bantam_pool_last_error(), "pool is null");
  EXPECT_EQ(bantam_pool_open("cpu", 0, "", &pool), BANTAM_POOL_ERROR);
  EXPECT_STREQ(bantam_pool_last_error(), "share_pool: reports need a name for the pool's memory");
  EXPECT_EQ(pool, nullptr);
  EXPECT_EQ(bantam_pool_allocate(nullptr, 8, nullptr), nullptr);
  EXPECT_EQ(bantam_pool_serve(nullptr), BANTAM_POOL_ERROR);
  EXPECT_EQ(bantam_pool_report(nullptr, 0), nullptr);
  EXPECT_EQ(bantam_pool_close(nullptr), BANTAM_POOL_OK);
  ASSERT_EQ(bantam_pool_open("cpu", 0, "x", &pool), BANTAM_POOL_OK);
  int mine = 0;
  EXPECT_EQ(bantam_pool_free(pool, &mine), BANTAM_POOL_ERROR);
  EXPECT_NE(std::string(bantam_pool_last_error()).find("is not in use in the pool for x"), std::string::npos);
  EXPECT_EQ(bantam_pool_reserve_for(pool, "", 8), BANTAM_POOL_ERROR);
  EXPECT_STREQ(bantam_pool_last_error(), "cpu: a reservation needs a name");
  EXPECT_EQ(bantam_pool_close(pool), BANTAM_POOL_OK);
}

}  // namespace
}  // namespace bantam::testing::shared_pool_test
