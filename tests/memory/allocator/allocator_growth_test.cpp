// Regions, limits, sources that refuse: the pool never passes the limit, every loop ends, what failed changed nothing.
#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/memory/allocator/allocator.h"
#include "tests/memory/test_source.h"

namespace bantam::allocator_growth_test {
namespace {

using testing::SourceLog;
using testing::TestSource;

constexpr AllocationTag kTag{Category::activation, "test"};
constexpr std::size_t kMiB = 1u << 20;

struct Rig {
  explicit Rig(AllocatorOptions options, std::size_t capacity = 0)
      : log(std::make_shared<SourceLog>()),
        allocator(std::make_unique<BfcAllocator>(std::make_unique<TestSource>(log, capacity), Device::cpu(), options)) {
  }
  ~Rig() { EXPECT_EQ(allocator->check_invariants(), ""); }
  void* get(std::size_t bytes) { return allocator->allocate(bytes, {}, kTag); }
  void put(void* address) { allocator->free(address, {}); }
  std::shared_ptr<SourceLog> log;
  std::unique_ptr<BfcAllocator> allocator;
};

TEST(AllocatorGrowth, nothing_is_taken_before_the_first_allocation) {
  const Rig growing({.limit_bytes = 8 * kMiB}), whole({.limit_bytes = 8 * kMiB, .growth = false});
  EXPECT_TRUE(growing.log->calls.empty());
  EXPECT_TRUE(whole.log->calls.empty());
}

TEST(AllocatorGrowth, regions_double_and_the_last_is_cut_to_the_limit) {
  Rig rig({.limit_bytes = 10 * kMiB + 300});
  for (int i = 0; i < 10; ++i) rig.get(kMiB);
  std::vector<std::size_t> sizes;
  for (const auto& call : rig.log->calls) sizes.push_back(call.bytes);
  EXPECT_EQ(sizes, (std::vector<std::size_t>{2 * kMiB, 4 * kMiB, 4 * kMiB + 256}));
  EXPECT_NE(rig.get(256), nullptr);
  EXPECT_THROW(rig.get(1), OutOfMemory);
  EXPECT_EQ(rig.log->most_reserved, 10 * kMiB + 256);
}

TEST(AllocatorGrowth, a_request_above_the_next_region_gets_a_region_of_its_size) {
  Rig rig({});
  rig.get(9 * kMiB + 1);
  EXPECT_EQ(rig.log->calls.at(0).bytes, 9 * kMiB + 256);
}

TEST(AllocatorGrowth, back_off_takes_less_and_ends_for_any_request) {
  Rig rig({.first_region_bytes = 64 * kMiB}, 20 * kMiB);
  rig.get(kMiB);
  EXPECT_GT(rig.log->calls.size(), 2u);
  EXPECT_LE(rig.log->reserved, 20 * kMiB);
  EXPECT_GT(rig.log->reserved, 17 * kMiB) << "one step of 0.9 below the capacity at most";
  for (const std::size_t size : {std::size_t{1}, std::size_t{256}, std::size_t{257}, kMiB, 40 * kMiB}) {
    Rig dry({.first_region_bytes = 64 * kMiB});
    dry.log->fails = [](std::uint64_t, std::size_t) { return true; };
    EXPECT_THROW(dry.get(size), OutOfMemory);
    // ln(64 MiB / 256 B) / -ln(0.9) = 118 steps, and some more where 0.9 is rounded to allocation units.
    EXPECT_LT(dry.log->acquires, 150u) << size;
    EXPECT_EQ(dry.log->calls.back().bytes, (size + 255) / 256 * 256) << "the request itself is tried last";
  }
}

TEST(AllocatorGrowth, free_regions_are_released_to_make_room) {
  Rig rig({.limit_bytes = 8 * kMiB});
  std::vector<void*> small;
  for (int i = 0; i < 6; ++i) small.push_back(rig.get(kMiB));
  void* keep = rig.get(kMiB);
  for (void* block : small) rig.put(block);
  EXPECT_EQ(rig.allocator->stats().pool_bytes, 8 * kMiB);
  EXPECT_EQ(rig.allocator->stats().regions, 3u);
  EXPECT_NE(rig.get(5 * kMiB), nullptr);
  EXPECT_EQ(rig.log->most_reserved, 8 * kMiB);
  EXPECT_EQ(rig.allocator->allocated_bytes(keep), kMiB);
}

TEST(AllocatorGrowth, a_request_the_limit_forbids_changes_nothing_and_the_next_smaller_works) {
  Rig rig({.limit_bytes = 8 * kMiB});
  void* a = rig.get(kMiB);
  rig.put(rig.get(3 * kMiB));
  const auto before = rig.allocator->stats();
  const auto calls = rig.log->calls.size();
  EXPECT_THROW(rig.get(7 * kMiB), OutOfMemory) << "1 MiB is pinned in a region of 2";
  EXPECT_EQ(rig.log->calls.size(), calls);
  EXPECT_EQ(rig.allocator->stats().pool_bytes, before.pool_bytes);
  EXPECT_NE(rig.get(6 * kMiB), nullptr);
  rig.put(a);
}

TEST(AllocatorGrowth, trim_releases_what_is_free_while_other_memory_lives) {
  Rig rig({});
  void* keep = rig.get(kMiB);
  void* a = rig.get(3 * kMiB);
  rig.put(a);
  EXPECT_EQ(rig.allocator->trim(), 4 * kMiB);
  EXPECT_EQ(rig.log->reserved, 2 * kMiB);
  EXPECT_EQ(rig.allocator->trim(), 0u);
  rig.put(keep);
  EXPECT_EQ(rig.allocator->trim(), 2 * kMiB);
  EXPECT_EQ(rig.log->reserved, 0u);
  rig.get(1);
  EXPECT_EQ(rig.log->reserved, 2 * kMiB) << "growth starts again";
}

TEST(AllocatorGrowth, trimming_again_and_again_does_not_double_the_regions) {
  Rig rig({});
  rig.get(kMiB);
  for (int epoch = 0; epoch < 50; ++epoch) {
    rig.put(rig.get(3 * kMiB));
    rig.allocator->trim();
  }
  EXPECT_EQ(rig.log->most_reserved, 6 * kMiB);
}

TEST(AllocatorGrowth, a_limit_can_be_raised_and_lowered_while_memory_lives) {
  Rig rig({.limit_bytes = 2 * kMiB});
  void* a = rig.get(kMiB);
  EXPECT_THROW(rig.get(2 * kMiB), OutOfMemory);
  rig.allocator->set_limit(16 * kMiB);
  void* b = rig.get(2 * kMiB);
  const auto before = rig.allocator->stats();
  try {
    rig.allocator->set_limit(4 * kMiB);
    ADD_FAILURE() << "lowered below live memory";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.facts().in_use_bytes, 3 * kMiB);
  }
  EXPECT_EQ(rig.allocator->stats().limit_bytes, 16 * kMiB);
  EXPECT_EQ(rig.allocator->stats().pool_bytes, before.pool_bytes);
  rig.put(b);
  rig.allocator->set_limit(2 * kMiB);
  EXPECT_EQ(rig.log->reserved, 2 * kMiB);
  EXPECT_THROW(rig.get(2 * kMiB), OutOfMemory);
  rig.allocator->set_limit(0);
  EXPECT_NE(rig.get(100 * kMiB), nullptr);
  rig.put(a);
}

// Regions come and go whole: the least that is enough goes.
TEST(AllocatorGrowth, a_lower_limit_takes_no_more_idle_regions_than_it_needs) {
  Rig rig({});
  const std::vector<void*> blocks = {rig.get(2 * kMiB), rig.get(4 * kMiB), rig.get(8 * kMiB), rig.get(16 * kMiB)};
  for (void* block : blocks) rig.put(block);
  ASSERT_EQ(rig.allocator->stats().regions, 4u);
  rig.allocator->set_limit(30 * kMiB - 256);
  EXPECT_EQ(rig.log->reserved, 28 * kMiB) << "the smallest is enough";
  rig.allocator->set_limit(21 * kMiB);
  EXPECT_EQ(rig.log->reserved, 20 * kMiB) << "4 MiB are too few, so 8 go";
  void* large = rig.get(16 * kMiB);
  EXPECT_EQ(large, blocks[3]) << "it never went";
  rig.allocator->set_limit(16 * kMiB);
  EXPECT_EQ(rig.log->reserved, 16 * kMiB);
  rig.put(large);
  rig.get(2 * kMiB);
  EXPECT_THROW(rig.allocator->set_limit(2 * kMiB), OutOfMemory);
  EXPECT_EQ(rig.log->reserved, 16 * kMiB);
}

TEST(AllocatorGrowth, without_growth_the_limit_is_one_region) {
  EXPECT_THROW(Rig({.growth = false}), Error);
  Rig rig({.limit_bytes = 8 * kMiB + 100, .growth = false});
  EXPECT_THROW(rig.get(9 * kMiB), OutOfMemory);
  EXPECT_TRUE(rig.log->calls.empty());
  rig.get(1);
  ASSERT_EQ(rig.log->calls.size(), 1u);
  EXPECT_EQ(rig.log->calls[0].bytes, 8 * kMiB);
  EXPECT_NE(rig.get(8 * kMiB - 256), nullptr);
  EXPECT_THROW(rig.get(1), OutOfMemory);
  EXPECT_THROW(rig.allocator->set_limit(0), Error);
  EXPECT_EQ(rig.log->calls.size(), 1u);
}

TEST(AllocatorGrowth, a_source_failing_at_any_call_leaves_a_working_allocator) {
  for (std::uint64_t k = 0; k < 40; ++k) {
    Rig rig({.limit_bytes = 64 * kMiB});
    rig.log->fails = [k](std::uint64_t call, std::size_t) { return call >= k && call < k + 60; };
    std::vector<void*> live;
    int refused = 0;
    for (std::size_t i = 0; i < 60; ++i) {
      const auto before = rig.allocator->stats();
      try {
        live.push_back(rig.get((i * 7919 % 13 + 1) * 200 * 1024));
      } catch (const OutOfMemory&) {
        ++refused;
        const auto after = rig.allocator->stats();
        EXPECT_EQ(after.in_use_bytes, before.in_use_bytes);
        EXPECT_EQ(after.allocations, before.allocations);
        EXPECT_EQ(after.by_category.bytes, before.by_category.bytes);
      }
      if (i % 3 == 2 && !live.empty()) {
        rig.put(live.front());
        live.erase(live.begin());
      }
      ASSERT_EQ(rig.allocator->check_invariants(), "") << "failing from call " << k << ", step " << i;
    }
    EXPECT_TRUE(refused > 0 || rig.log->acquires <= k + 60) << k;
  }
}

TEST(AllocatorGrowth, a_misaligned_source_is_refused_and_loses_nothing) {
  struct Odd final : RegionSource {
    explicit Odd(int& balance) : balance_(balance) {}
    void* acquire(std::size_t) override { return ++balance_, reinterpret_cast<void*>(0x10080); }
    void release(void*, std::size_t) noexcept override { --balance_; }
    const char* name() const override { return "odd"; }
    int& balance_;
  };
  int balance = 0;
  BfcAllocator allocator(std::make_unique<Odd>(balance), Device::cpu(), {});
  EXPECT_THROW(allocator.allocate(1, {}, kTag), Error);
  EXPECT_EQ(balance, 0);
  EXPECT_EQ(allocator.stats().pool_bytes, 0u);
  EXPECT_THROW(BfcAllocator(nullptr, Device::cpu(), {}), Error);
}

}  // namespace
}  // namespace bantam::allocator_growth_test
