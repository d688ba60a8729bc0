// A limit on the process: overhead first, pools from what is left, whatever comes later; and logical devices (invariant
// 17 of the allocator's list: never above their own limits, nor their sum above the card).
#include "bantam/memory/limits/process_limit.h"

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/base/error.h"

namespace bantam::process_limit_test {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;

/// A device that counts a process: what its pools hold, and an overhead that the test moves.
class ProcessLimitTest : public ::testing::Test {
 protected:
  ProcessLimitTest() : reserved_([this] { return pool_bytes(); }) {}

  ProcessLimit& make(std::uint64_t limit, std::vector<std::uint64_t> shares = {}, std::uint64_t card = 0,
                     std::map<int, std::uint64_t> budgets = {}) {
    limit_ = std::make_unique<ProcessLimit>(
        ProcessLimitOptions{.name = "gpu",
                            .limit_bytes = limit,
                            .card_bytes = card,
                            .shares = std::move(shares),
                            .budgets = std::move(budgets),
                            .reserve_bytes = 20 * kMiB,
                            .late_reserve_bytes = 4 * kMiB,
                            .process_bytes = [this](std::uint64_t) { return process_bytes(); }});
    return *limit_;
  }
  BfcAllocator& add_pool(int share = Device::kWhole, bool growth = true) {
    pools_.push_back(std::make_unique<BfcAllocator>(
        make_fake_source(), Device::cpu(),
        AllocatorOptions{
            .name = "pool", .limit_bytes = limit_->pool_limit(share), .growth = growth, .first_region_bytes = 256}));
    limit_->attach(*pools_.back(), share);
    return *pools_.back();
  }
  std::uint64_t pool_bytes() const {
    std::uint64_t sum = 0;
    for (const auto& pool : pools_) sum += pool->stats().pool_bytes;
    return sum;
  }
  std::uint64_t process_bytes() const { return overhead_ + reserved_(); }
  static void* take(BfcAllocator& pool, std::uint64_t bytes) {
    return pool.allocate(bytes, {}, {Category::other, "test"});
  }
  static std::string message_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const OutOfMemory& error) {
      return error.what();
    }
    return "nothing was thrown";
  }

  std::uint64_t overhead_ = 0;
  std::function<std::uint64_t()> reserved_;  // what the device counts for the pools
  std::vector<std::unique_ptr<BfcAllocator>> pools_;
  std::unique_ptr<ProcessLimit> limit_;
};

TEST_F(ProcessLimitTest, OverheadIsPaidFirstLineByLine) {
  ProcessLimit& limit = make(100 * kMiB);
  overhead_ = 30 * kMiB;
  limit.note_overhead("context");
  overhead_ += 5 * kMiB;
  limit.note_overhead("library");
  BfcAllocator& pool = add_pool();
  EXPECT_EQ(pool.stats().limit_bytes, 45 * kMiB) << "100 - 30 - 5 - 20 kept for kernels";
  overhead_ += 10 * kMiB;
  void* live = take(pool, kMiB);  // pools are not overhead
  limit.settle();
  EXPECT_EQ(pool.stats().limit_bytes, 51 * kMiB) << "100 - 45 - 4";
  EXPECT_EQ(limit.overhead(),
            (std::vector<OverheadLine>{{"context", 30 * kMiB}, {"library", 5 * kMiB}, {"kernels", 10 * kMiB}}));
  pool.free(live, {});
}

TEST_F(ProcessLimitTest, WithoutALimitNothingIsBoundedButOverheadIsKnown) {
  ProcessLimit& limit = make(0);
  overhead_ = 30 * kMiB;
  limit.note_overhead("context");
  EXPECT_EQ(add_pool().stats().limit_bytes, 0u);
  EXPECT_EQ(total_bytes(limit.overhead()), 30 * kMiB);
  limit.require(Device::kWhole, ~std::uint64_t{0});
}

TEST_F(ProcessLimitTest, ALimitThatIsTooSmallIsRefusedWithTheOneThatWouldDo) {
  ProcessLimit& limit = make(60 * kMiB);
  overhead_ = 30 * kMiB;
  limit.note_overhead("context");
  limit.require(Device::kWhole, 10 * kMiB);
  const std::string too_small = message_of([&] { limit.require(Device::kWhole, 10 * kMiB + 1); });
  EXPECT_NE(too_small.find("needed at least 60.0 MiB (62914561 B)"), std::string::npos) << too_small;
  EXPECT_NE(too_small.find("context"), std::string::npos) << too_small;
  overhead_ = 41 * kMiB;
  const std::string overhead_alone = message_of([&] { limit.note_overhead("library"); });
  EXPECT_NE(overhead_alone.find("library"), std::string::npos) << overhead_alone;
}

TEST_F(ProcessLimitTest, OverheadThatComesLateTakesTheReserveThenThePool) {
  ProcessLimit& limit = make(100 * kMiB);
  overhead_ = 30 * kMiB;
  limit.note_overhead("context");
  BfcAllocator& pool = add_pool();
  limit.settle();
  ASSERT_EQ(pool.stats().limit_bytes, 66 * kMiB);
  void* idle = take(pool, 60 * kMiB);
  void* live = take(pool, kMiB);
  pool.free(idle, {});
  overhead_ += 3 * kMiB;
  limit.refresh();
  EXPECT_EQ(pool.stats().limit_bytes, 66 * kMiB) << "the reserve was there for it";
  overhead_ += 30 * kMiB;
  EXPECT_GT(process_bytes(), 100 * kMiB);
  limit.refresh();
  EXPECT_EQ(pool.stats().limit_bytes, 37 * kMiB);
  EXPECT_LE(process_bytes(), 100 * kMiB) << "idle memory went back";
  void* more = take(pool, 36 * kMiB);
  overhead_ += 2 * kMiB;
  EXPECT_THROW(limit.refresh(), OutOfMemory) << "live memory is in the way";
  pool.free(live, {});
  pool.free(more, {});
}

// Whoever looks first at overhead that came late pays it from the reserve.
TEST_F(ProcessLimitTest, EveryLookDrawsOnTheReserve) {
  const std::vector<std::function<void(ProcessLimit&)>> looks = {
      [](ProcessLimit& limit) { limit.refresh(); },
      [](ProcessLimit& limit) { limit.set_limit(Device::kWhole, 100 * kMiB); },
      [](ProcessLimit& limit) { limit.note_overhead("library"); },
      [](ProcessLimit& limit) { limit.settle(); },
  };
  for (std::size_t i = 0; i < looks.size(); ++i) {
    pools_.clear();
    overhead_ = 50 * kMiB;
    ProcessLimit& limit = make(100 * kMiB);
    limit.note_overhead("context");
    BfcAllocator& pool = add_pool();
    limit.settle();
    void* all = take(pool, 46 * kMiB);  // the late reserve of 4 MiB is all that is left
    overhead_ += 2 * kMiB;
    EXPECT_NO_THROW(looks[i](limit)) << "look " << i;
    EXPECT_EQ(pool.stats().limit_bytes, 46 * kMiB) << "look " << i;
    overhead_ += 2 * kMiB;
    EXPECT_NO_THROW(limit.refresh()) << "look " << i << ": what the reserve had left";
    overhead_ += kMiB;
    EXPECT_THROW(looks[i](limit), OutOfMemory) << "look " << i << ": the reserve is used up";
    pool.free(all, {});
  }
}

TEST_F(ProcessLimitTest, SettlingAgainDoesNotRefillTheReserve) {
  ProcessLimit& limit = make(100 * kMiB);
  overhead_ = 50 * kMiB;
  limit.note_overhead("context");
  BfcAllocator& pool = add_pool();
  limit.settle();
  overhead_ += 3 * kMiB;
  limit.refresh();
  void* all = take(pool, 46 * kMiB);
  EXPECT_NO_THROW(limit.settle());
  EXPECT_EQ(pool.stats().limit_bytes, 46 * kMiB) << "1 of 4 is left: 100 - 53 - 1";
  pool.free(all, {});
}

TEST_F(ProcessLimitTest, AskingForTheOverheadChangesNothing) {
  ProcessLimit& limit = make(100 * kMiB);
  overhead_ = 30 * kMiB;
  limit.note_overhead("context");
  BfcAllocator& pool = add_pool();
  limit.settle();
  void* all = take(pool, 66 * kMiB);
  overhead_ += 9 * kMiB;
  EXPECT_EQ(limit.overhead(), (std::vector<OverheadLine>{{"context", 30 * kMiB}, {"kernels", 9 * kMiB}}));
  EXPECT_EQ(pool.stats().limit_bytes, 66 * kMiB);
  EXPECT_THROW(limit.refresh(), OutOfMemory) << "5 MiB more than the reserve: it is this that enforces";
  pool.free(all, {});
}

TEST_F(ProcessLimitTest, ALowerLimitOfThePoolStaysUntilOursChanges) {
  ProcessLimit& limit = make(100 * kMiB);
  overhead_ = 30 * kMiB;
  limit.note_overhead("context");
  BfcAllocator& pool = add_pool();
  limit.settle();
  ASSERT_EQ(pool.stats().limit_bytes, 66 * kMiB);
  pool.set_limit(5 * kMiB);
  limit.refresh();
  EXPECT_EQ(pool.stats().limit_bytes, 5 * kMiB);
  pool.set_limit(90 * kMiB);
  limit.refresh();
  EXPECT_EQ(pool.stats().limit_bytes, 66 * kMiB) << "more than is left is not the pool's to have";
  pool.set_limit(5 * kMiB);
  limit.set_limit(Device::kWhole, 90 * kMiB);
  EXPECT_EQ(pool.stats().limit_bytes, 56 * kMiB);
}

TEST_F(ProcessLimitTest, OverheadNeverCountsAsLessThanItWas) {
  ProcessLimit& limit = make(100 * kMiB);
  overhead_ = 40 * kMiB;
  limit.note_overhead("context");
  overhead_ = 20 * kMiB;
  limit.refresh();
  EXPECT_EQ(total_bytes(limit.overhead()), 40 * kMiB);
  overhead_ = 45 * kMiB;
  limit.refresh();
  EXPECT_EQ(total_bytes(limit.overhead()), 45 * kMiB);
}

TEST_F(ProcessLimitTest, APoolThatMovesDuringTheMeasurementIsNotTakenForOverhead) {
  ProcessLimit& limit = make(100 * kMiB);
  overhead_ = 30 * kMiB;
  limit.note_overhead("context");
  BfcAllocator& pool = add_pool();
  std::vector<void*> taken;
  reserved_ = [&] {  // another thread's allocation, between the reading of the pools and that of the process
    if (taken.size() < 5) taken.push_back(take(pool, kMiB));
    return pool_bytes();
  };
  limit.refresh();
  EXPECT_EQ(total_bytes(limit.overhead()), 30 * kMiB);
  EXPECT_EQ(taken.size(), 5u);
  for (void* address : taken) pool.free(address, {});
}

TEST_F(ProcessLimitTest, APoolThatCameAndWentDuringTheMeasurementIsNotOverheadForGood) {
  ProcessLimit& limit = make(100 * kMiB);
  overhead_ = 10 * kMiB;
  limit.note_overhead("context");
  BfcAllocator& pool = add_pool();
  limit.settle();
  bool moved = false;
  reserved_ = [&]() -> std::uint64_t {
    if (std::exchange(moved, true)) return pool_bytes();
    void* passing = take(pool, 30 * kMiB);
    const std::uint64_t counted = pool_bytes();
    pool.free(passing, {});
    pool.trim();
    return counted;
  };
  limit.refresh();
  EXPECT_TRUE(moved);
  EXPECT_EQ(total_bytes(limit.overhead()), 10 * kMiB);
  EXPECT_EQ(pool.stats().limit_bytes, 86 * kMiB);
}

TEST_F(ProcessLimitTest, ALimitThatThePoolRefusesLeavesTheOldOne) {
  ProcessLimit& limit = make(100 * kMiB);
  overhead_ = 30 * kMiB;
  limit.note_overhead("context");
  BfcAllocator& pool = add_pool(Device::kWhole, false);
  EXPECT_THROW(limit.set_limit(Device::kWhole, 0), Error) << "a pool without growth has to have a limit";
  EXPECT_EQ(limit.limit(Device::kWhole), 100 * kMiB);
  EXPECT_EQ(pool.stats().limit_bytes, 50 * kMiB);
}

TEST_F(ProcessLimitTest, AShareThatCannotShrinkKeepsItsLimit) {
  ProcessLimit& limit = make(0, {30 * kMiB}, 100 * kMiB);
  overhead_ = 10 * kMiB;
  limit.note_overhead("context");
  BfcAllocator& whole = add_pool();
  BfcAllocator& pool = add_pool(0);
  limit.settle();
  void* live = take(pool, 20 * kMiB);
  EXPECT_THROW(limit.set_limit(0, 10 * kMiB), OutOfMemory);
  EXPECT_EQ(limit.limit(0), 30 * kMiB);
  EXPECT_EQ(pool.stats().limit_bytes, 30 * kMiB);
  void* all = take(whole, 56 * kMiB);
  overhead_ += 9 * kMiB;  // 5 more than the reserve, and the share gives only 4
  EXPECT_THROW(limit.set_limit(0, 26 * kMiB), OutOfMemory) << "the device's own pool would have to shrink";
  EXPECT_EQ(limit.limit(0), 30 * kMiB);
  EXPECT_EQ(pool.stats().limit_bytes, 30 * kMiB);
  limit.set_limit(0, 25 * kMiB);
  EXPECT_EQ(pool.stats().limit_bytes, 25 * kMiB);
  whole.free(all, {});
  pool.free(live, {});
}

TEST_F(ProcessLimitTest, BudgetsBoundPoolsWhateverTheirLimits) {
  ProcessLimit& limit = make(0, {30 * kMiB, 10 * kMiB}, 100 * kMiB, {{0, 12 * kMiB}, {Device::kWhole, 5 * kMiB}});
  BfcAllocator& first = add_pool(0);
  BfcAllocator& second = add_pool(1);
  BfcAllocator& whole = add_pool();
  EXPECT_EQ(first.stats().limit_bytes, 12 * kMiB);
  limit.set_limit(0, 20 * kMiB);
  EXPECT_EQ(first.stats().limit_bytes, 12 * kMiB) << "the budget is less still";
  limit.set_limit(0, 8 * kMiB);
  EXPECT_EQ(first.stats().limit_bytes, 8 * kMiB);
  limit.set_limit(0, 40 * kMiB);
  EXPECT_EQ(first.stats().limit_bytes, 12 * kMiB);
  EXPECT_EQ(limit.limit(0), 40 * kMiB);
  limit.require(0, 12 * kMiB);
  const std::string refused = message_of([&] { limit.require(0, 13 * kMiB); });
  EXPECT_NE(refused.find("the budget for gpu/0 is too small: 12.0 MiB"), std::string::npos) << refused;
  EXPECT_THROW(limit.require(Device::kWhole, 6 * kMiB), OutOfMemory);
  EXPECT_EQ(second.stats().limit_bytes, 10 * kMiB);
  EXPECT_EQ(whole.stats().limit_bytes, 5 * kMiB);
}

TEST_F(ProcessLimitTest, TheLimitIsRaisedAndLoweredWhileMemoryLives) {
  ProcessLimit& limit = make(100 * kMiB);
  overhead_ = 30 * kMiB;
  limit.note_overhead("context");
  BfcAllocator& pool = add_pool();
  limit.settle();
  void* idle = take(pool, 40 * kMiB);
  void* live = take(pool, 8 * kMiB);
  pool.free(idle, {});
  limit.set_limit(Device::kWhole, 50 * kMiB);
  EXPECT_EQ(limit.limit(Device::kWhole), 50 * kMiB);
  EXPECT_EQ(pool.stats().limit_bytes, 16 * kMiB);
  EXPECT_LE(process_bytes(), 50 * kMiB) << "lowering gave idle memory back";
  const std::string refused = message_of([&] { limit.set_limit(Device::kWhole, 40 * kMiB); });
  EXPECT_NE(refused.find("cannot be set to 40.0 MiB"), std::string::npos) << refused;
  EXPECT_EQ(limit.limit(Device::kWhole), 50 * kMiB) << "nothing has changed";
  EXPECT_EQ(pool.stats().limit_bytes, 16 * kMiB);
  EXPECT_THROW(limit.set_limit(Device::kWhole, 10 * kMiB), OutOfMemory) << "less than the overhead";
  EXPECT_EQ(limit.limit(Device::kWhole), 50 * kMiB);
  limit.set_limit(Device::kWhole, 200 * kMiB);
  EXPECT_EQ(pool.stats().limit_bytes, 166 * kMiB);
  limit.set_limit(Device::kWhole, 0);
  EXPECT_EQ(pool.stats().limit_bytes, 0u);
  pool.free(live, {});
}

TEST_F(ProcessLimitTest, SharesBoundTheirPoolsAndTheDeviceKeepsTheRest) {
  ProcessLimit& limit = make(0, {30 * kMiB, 10 * kMiB}, 100 * kMiB);
  overhead_ = 25 * kMiB;
  limit.note_overhead("context");
  limit.settle();
  EXPECT_EQ(limit.pool_limit(0), 30 * kMiB);
  EXPECT_EQ(limit.pool_limit(1), 10 * kMiB);
  EXPECT_EQ(limit.pool_limit(Device::kWhole), 31 * kMiB) << "100 - 25 - 4 - 40";
  EXPECT_THROW((void)limit.pool_limit(2), DeviceError);
  EXPECT_THROW(limit.require(1, 10 * kMiB + 1), OutOfMemory);
  limit.require(1, 10 * kMiB);
  EXPECT_THROW(make(0, {90 * kMiB}, 100 * kMiB), OutOfMemory) << "20 are kept for kernels";
  EXPECT_THROW(make(0, {0}, 100 * kMiB), ConfigError);
  EXPECT_THROW(make(0, {~std::uint64_t{0}, 2}, 100 * kMiB), OutOfMemory) << "the sum wraps";
}

// Invariant 17, at random: three pools, limits that move, an overhead that grows.
TEST_F(ProcessLimitTest, LogicalDevicesStayWithinTheirLimitsAndTheCard) {
  constexpr std::uint64_t kCard = 200 * kMiB;
  ProcessLimit& limit = make(0, {60 * kMiB, 40 * kMiB}, kCard);
  overhead_ = 20 * kMiB;
  limit.note_overhead("context");
  for (const int share : {0, 1, Device::kWhole}) add_pool(share);
  limit.settle();
  std::mt19937_64 random(17);
  std::vector<std::pair<std::size_t, void*>> live;
  int refused = 0, moved = 0;
  for (int step = 0; step < 20000; ++step) {
    const auto dice = random() % 100;
    const std::size_t which = random() % 3;
    try {
      if (dice < 50) {
        live.emplace_back(which, take(*pools_[which], random() % (8 * kMiB) + 1));
      } else if (dice < 90 && !live.empty()) {
        std::swap(live[random() % live.size()], live.back());
        pools_[live.back().first]->free(live.back().second, {});
        live.pop_back();
      } else if (dice < 97) {
        limit.set_limit(static_cast<int>(which % 2), random() % (120 * kMiB) + 1);
        ++moved;
      } else if (overhead_ < 40 * kMiB) {
        overhead_ += random() % kMiB;
        try {
          limit.refresh();
        } catch (const OutOfMemory&) {  // live memory of the whole device is in the way: a program lets go of some
          std::erase_if(live, [&](const auto& allocation) {
            if (allocation.first == 2) pools_[2]->free(allocation.second, {});
            return allocation.first == 2;
          });
          limit.refresh();
        }
      }
    } catch (const OutOfMemory&) {
      ++refused;
    }
    std::uint64_t limits = 0;
    for (std::size_t i = 0; i < pools_.size(); ++i) {
      const MemoryStats stats = pools_[i]->stats();
      ASSERT_LE(stats.pool_bytes, stats.limit_bytes) << "step " << step << ", pool " << i;
      if (i < 2) {
        ASSERT_EQ(stats.limit_bytes, limit.limit(static_cast<int>(i)));
      }
      limits += stats.limit_bytes;
    }
    ASSERT_LE(limits + total_bytes(limit.overhead()), kCard + 1) << "step " << step;  // a pool of nothing has 1 byte
    ASSERT_LE(process_bytes(), kCard) << "step " << step;
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(moved, 100);
}

TEST_F(ProcessLimitTest, AReservationIsTakenFromThePoolBeforeOrAfterItsMemoryIsThere) {
  ProcessLimit& limit = make(100 * kMiB);
  overhead_ = 30 * kMiB;
  limit.note_overhead("context");
  BfcAllocator& pool = add_pool();
  limit.set_reservation("fft", 10 * kMiB);
  EXPECT_EQ(pool.stats().limit_bytes, 40 * kMiB) << "100 - 30 - 20 kept for kernels - 10";
  overhead_ += 10 * kMiB;  // the library allocates what was reserved for it
  limit.refresh();
  EXPECT_EQ(pool.stats().limit_bytes, 40 * kMiB);
  EXPECT_EQ(limit.overhead(), (std::vector<OverheadLine>{{"context", 30 * kMiB}, {"fft", 10 * kMiB}}));
  overhead_ += 25 * kMiB;  // another library, 5 more than was kept free
  limit.set_reservation("blas", 25 * kMiB);
  EXPECT_EQ(pool.stats().limit_bytes, 15 * kMiB);
  limit.refresh();
  EXPECT_EQ(pool.stats().limit_bytes, 15 * kMiB) << "its bytes are not counted twice";
  limit.set_reservation("blas", 0);
  limit.set_reservation("fft", 5 * kMiB);
  EXPECT_EQ(limit.overhead(),
            (std::vector<OverheadLine>{{"context", 30 * kMiB}, {"fft", 5 * kMiB}, {"kernels", 30 * kMiB}}))
      << "what is still there is measured";
}

TEST_F(ProcessLimitTest, AReservationThatLiveMemoryForbidsChangesNothing) {
  ProcessLimit& limit = make(100 * kMiB);
  BfcAllocator& pool = add_pool();
  void* const live = take(pool, 60 * kMiB);
  limit.set_reservation("fft", 15 * kMiB);
  EXPECT_THROW(limit.set_reservation("fft", 30 * kMiB), OutOfMemory);
  EXPECT_EQ(pool.stats().limit_bytes, 65 * kMiB);
  EXPECT_EQ(limit.overhead(), (std::vector<OverheadLine>{{"fft", 15 * kMiB}}));
  EXPECT_NE(message_of([&] { limit.set_reservation("fft", 200 * kMiB); }).find("fft             200 MiB"),
            std::string::npos);
  pool.free(live, {});
  limit.set_reservation("fft", 30 * kMiB);
  EXPECT_EQ(pool.stats().limit_bytes, 50 * kMiB);
}

TEST_F(ProcessLimitTest, AReservationHasANameOfItsOwn) {
  ProcessLimit& limit = make(0);
  overhead_ = kMiB;
  limit.note_overhead("context");
  EXPECT_THROW(limit.set_reservation("", 1), ConfigError);
  EXPECT_THROW(limit.set_reservation("context", 1), ConfigError);
  EXPECT_THROW(limit.set_reservation("huge", ~std::uint64_t{0}), ConfigError);
  limit.set_reservation("fft", kMiB);
  EXPECT_EQ(total_bytes(limit.overhead()), 2 * kMiB) << "without a limit it is in the report alone";
}

}  // namespace
}  // namespace bantam::process_limit_test
