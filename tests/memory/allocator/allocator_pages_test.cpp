// The allocator on pages: it reserves what is needed, releases what is idle, and fails only where live memory fills the
// limit.

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/memory/allocator/allocator.h"
#include "tests/cpu_seconds.h"
#include "tests/memory/simulated_streams.h"
#include "tests/memory/test_pages.h"

namespace bantam::allocator_pages_test {
namespace {

using testing::PageLog;
using testing::SimulatedOracle;
using testing::SimulatedStreams;
using testing::TestPages;

constexpr AllocationTag kTag{Category::activation, "test"};
constexpr std::size_t kMiB = 1u << 20;
constexpr std::size_t kPage = 2 * kMiB;

struct Rig {
  explicit Rig(AllocatorOptions options, FakePages pages = {.page_bytes = kPage})
      : allocator(std::make_unique<TestPages>(log, pages), Device::cpu(), options) {}
  ~Rig() { EXPECT_EQ(allocator.check_invariants(), ""); }
  void* get(std::size_t bytes) { return allocator.allocate(bytes, {}, kTag); }
  void put(void* address) { allocator.free(address, {}); }
  std::shared_ptr<PageLog> log = std::make_shared<PageLog>();
  BfcAllocator allocator;
};

char* plus(void* address, std::size_t bytes) { return static_cast<char*>(address) + bytes; }

TEST(AllocatorPages, growth_maps_the_pages_that_are_needed_after_those_there) {
  Rig rig({});
  EXPECT_TRUE(rig.log->maps.empty());
  void* a = rig.get(5 * kMiB);
  EXPECT_EQ(rig.log->reserved, 6 * kMiB);
  EXPECT_EQ(rig.get(3 * kMiB), plus(a, 5 * kMiB)) << "1 MiB was there";
  EXPECT_EQ(rig.log->reserved, 8 * kMiB);
  rig.get(1);
  EXPECT_EQ(rig.log->reserved, 10 * kMiB);
  EXPECT_EQ(rig.allocator.stats().regions, 1u);
}

TEST(AllocatorPages, growth_goes_on_to_the_sources_step_where_the_limit_allows) {
  Rig rig({.limit_bytes = 7 * kMiB + 5}, {.page_bytes = 64 << 10, .growth_bytes = kPage});
  rig.get(100);
  EXPECT_EQ(rig.log->reserved, 2 * kMiB);
  rig.get(3 * kMiB);
  EXPECT_EQ(rig.log->reserved, 4 * kMiB);
  rig.get(3 * kMiB);
  EXPECT_EQ(rig.log->reserved, 7 * kMiB);
  Rig scarce({}, {.page_bytes = 64 << 10, .growth_bytes = kPage, .capacity = 100 << 10});
  scarce.get(100);
  EXPECT_EQ(scarce.log->reserved, 64u << 10) << "the step was refused, the page was not";
}

// What a region allocator cannot do: one block of 4 MiB stays in the middle, and 508 MiB lie free around it.
TEST(AllocatorPages, one_pinned_block_does_not_defeat_a_large_request) {
  Rig rig({.limit_bytes = 512 * kMiB});
  std::vector<void*> blocks;
  for (int i = 0; i < 128; ++i) blocks.push_back(rig.get(4 * kMiB));
  for (int i = 0; i < 128; ++i)
    if (i != 64) rig.put(blocks[static_cast<std::size_t>(i)]);
  EXPECT_NE(rig.get(508 * kMiB), nullptr);
  EXPECT_EQ(rig.log->most_reserved, 512 * kMiB) << "not a byte above the limit, not even in between";
  EXPECT_EQ(rig.allocator.allocated_bytes(blocks[64]), 4 * kMiB);
  EXPECT_THROW(rig.get(1), OutOfMemory);
}

TEST(AllocatorPages, holes_everywhere_are_as_good_as_one) {
  Rig rig({.limit_bytes = 256 * kMiB});
  std::vector<void*> blocks;
  for (int i = 0; i < 128; ++i) blocks.push_back(rig.get(2 * kMiB));
  for (std::size_t i = 0; i < 128; i += 2) rig.put(blocks[i]);
  EXPECT_THROW(rig.get(128 * kMiB + 1), OutOfMemory);
  EXPECT_EQ(rig.log->unmaps, 0u) << "what the limit forbids changes nothing";
  EXPECT_NE(rig.get(128 * kMiB), nullptr);
}

TEST(AllocatorPages, only_as_much_is_unmapped_as_the_limit_asks_for) {
  Rig rig({.limit_bytes = 16 * kMiB});
  void* a = rig.get(4 * kMiB);
  void* keep = rig.get(2 * kMiB);
  void* b = rig.get(6 * kMiB);
  rig.get(2 * kMiB);
  rig.put(a);
  rig.put(b);
  rig.get(8 * kMiB);  // beside the last block; 2 MiB are left below the limit, so 6 of the idle 10 go
  EXPECT_EQ(rig.allocator.stats().pool_bytes, 16 * kMiB);
  EXPECT_EQ(rig.get(4 * kMiB), a) << "the lower hole is still there";
  rig.put(keep);
}

TEST(AllocatorPages, a_steady_loop_maps_nothing_after_its_first_round) {
  Rig rig({.limit_bytes = 64 * kMiB});
  void* weights = rig.get(10 * kMiB + 300);
  std::uint64_t calls = 0;
  for (int step = 0; step < 20; ++step) {
    std::vector<void*> blocks;
    for (const std::size_t size : {7 * kMiB, 100 * std::size_t{1024}, 20 * kMiB, 3 * kMiB + 1, 9 * kMiB}) {
      blocks.push_back(rig.get(size));
      if (blocks.size() % 2 == 0) {
        rig.put(blocks.front());
        blocks.erase(blocks.begin());
      }
    }
    for (void* block : blocks) rig.put(block);
    if (step == 1) calls = rig.log->maps.size() + rig.log->unmaps;
  }
  EXPECT_EQ(rig.log->maps.size() + rig.log->unmaps, calls);
  rig.put(weights);
}

// Tenths of a second, where a walk over all chunks at each growth took most of a minute: the bound is far from both,
// and counts the process' time.
TEST(AllocatorPages, growth_does_not_walk_the_blocks_that_live) {
  BfcAllocator allocator(make_paged_fake_source(), Device::cpu(), {});
  constexpr std::size_t kBlock = 64 << 10, kBlocks = 40000;
  const double seconds = testing::cpu_seconds([&] {
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < kBlocks; ++i) {
      blocks.push_back(allocator.allocate(kBlock, {}, kTag));
      ASSERT_EQ(blocks[i], plus(blocks[0], i * kBlock));
    }
    for (std::size_t i = 1; i < kBlocks; i += 2) allocator.free(blocks[i], {});
    EXPECT_EQ(allocator.trim(), kBlocks / 2 * kBlock);
    EXPECT_EQ(allocator.stats().regions, kBlocks / 2);
    EXPECT_EQ(allocator.allocate(2 * kBlock, {}, kTag), plus(blocks[0], (kBlocks - 1) * kBlock)) << "no hole holds two";
    for (std::size_t i = 1; i < kBlocks - 1; i += 2)
      ASSERT_EQ(allocator.allocate(kBlock, {}, kTag), blocks[i]) << "holes are filled from the lowest on";
    EXPECT_EQ(allocator.stats().regions, 1u);
  });
  EXPECT_LT(seconds, 5);
  EXPECT_EQ(allocator.check_invariants(), "");
}

TEST(AllocatorPages, trim_gives_every_idle_page_back_and_live_memory_stays) {
  Rig rig({});
  void* a = rig.get(10 * kMiB);
  void* b = rig.get(kMiB);
  void* c = rig.get(9 * kMiB);
  void* d = rig.get(kMiB);
  rig.put(a);
  rig.put(c);
  EXPECT_EQ(rig.allocator.trim(), 10 * kMiB + 8 * kMiB) << "pages that live memory touches stay";
  EXPECT_EQ(rig.allocator.stats().regions, 2u);
  EXPECT_EQ(rig.allocator.trim(), 0u);
  EXPECT_EQ(rig.allocator.allocated_bytes(b), kMiB);
  EXPECT_EQ(rig.get(9 * kMiB), c) << "pages are mapped again where they fit best: at the same address";
  EXPECT_EQ(rig.get(10 * kMiB), a);
  for (void* block : {a, b, c, d}) rig.put(block);
  EXPECT_EQ(rig.allocator.trim(), 22 * kMiB);
  EXPECT_EQ(rig.log->reserved, 0u);
}

// Two readings of the pool must show that it changed in between, also where its bytes are the same.
TEST(AllocatorPages, whatever_moves_pages_counts_as_a_change_of_the_pool) {
  Rig rig({});
  const auto changes = [&] { return rig.allocator.stats().pool_changes; };
  EXPECT_EQ(changes(), 0u);
  void* kept = rig.get(kPage);
  const std::uint64_t grown = changes();
  EXPECT_GT(grown, 0u);
  void* idle = rig.get(kPage);
  rig.put(idle);
  const std::uint64_t before = changes(), reserved = rig.log->reserved;
  rig.put(rig.get(kPage));
  EXPECT_EQ(changes(), before) << "nothing was mapped";
  rig.allocator.trim();
  const std::uint64_t trimmed = changes();
  EXPECT_GT(trimmed, before);
  rig.put(rig.get(kPage));
  EXPECT_EQ(rig.log->reserved, reserved);
  EXPECT_GT(changes(), trimmed);
  rig.log->fails = [](std::uint64_t, std::size_t) { return true; };
  const std::uint64_t refused = changes();
  EXPECT_THROW(rig.get(4 * kPage), OutOfMemory);
  EXPECT_GT(changes(), refused) << "part of it may have been there for a moment";
  rig.put(kept);
}

TEST(AllocatorPages, a_limit_can_be_raised_and_lowered_while_memory_lives) {
  Rig rig({.limit_bytes = 8 * kMiB});
  void* a = rig.get(3 * kMiB);
  void* b = rig.get(4 * kMiB);
  EXPECT_THROW(rig.get(4 * kMiB), OutOfMemory);
  rig.allocator.set_limit(16 * kMiB);
  void* c = rig.get(4 * kMiB);
  rig.put(b);
  try {
    rig.allocator.set_limit(9 * kMiB);
    ADD_FAILURE() << "the two blocks lie on 10 MiB of pages";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.facts().in_use_bytes, 7 * kMiB);
    EXPECT_EQ(error.facts().limit_bytes, 16 * kMiB);
  }
  EXPECT_EQ(rig.log->unmaps, 0u);
  rig.allocator.set_limit(11 * kMiB);
  EXPECT_EQ(rig.log->reserved, 10 * kMiB);
  EXPECT_EQ(rig.allocator.allocated_bytes(a), 3 * kMiB);
  rig.put(c);
  rig.allocator.set_limit(0);
  EXPECT_NE(rig.get(100 * kMiB), nullptr);
}

TEST(AllocatorPages, without_growth_the_limit_is_taken_at_once) {
  Rig rig({.limit_bytes = 9 * kMiB, .growth = false});
  EXPECT_TRUE(rig.log->maps.empty());
  rig.get(1);
  EXPECT_EQ(rig.log->reserved, 8 * kMiB);
  EXPECT_NE(rig.get(8 * kMiB - 256), nullptr);
  EXPECT_EQ(rig.log->maps.size(), 1u);
  Rig scarce({.limit_bytes = 8 * kMiB, .growth = false}, {.page_bytes = kPage, .capacity = 6 * kMiB});
  EXPECT_THROW(scarce.get(1), OutOfMemory);
}

TEST(AllocatorPages, a_limit_below_a_page_says_so) {
  Rig rig({.limit_bytes = kMiB});
  try {
    rig.get(1);
    ADD_FAILURE() << "a page was mapped above the limit";
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("pages of 2.00 MiB"), std::string::npos) << error.what();
  }
}

TEST(AllocatorPages, a_source_that_throws_half_way_changes_nothing) {
  struct Throwing final : PagedSource {
    std::size_t page_bytes() const override { return 4096; }
    AddressRange addresses() const override { return {4096, 1 << 20}; }
    bool map(std::uintptr_t, std::size_t bytes) override {
      if (throws-- == 0) throw Error("the device fell off the bus");
      reserved += bytes;
      return true;
    }
    void unmap(std::uintptr_t, std::size_t bytes) noexcept override { reserved -= bytes; }
    const char* name() const override { return "throwing"; }
    int throws = 1000;
    std::size_t reserved = 0;
  };
  auto owned = std::make_unique<Throwing>();
  Throwing& source = *owned;
  BfcAllocator allocator(std::move(owned), Device::cpu(), {});
  void* a = allocator.allocate(64 * 4096, {}, kTag);
  void* b = allocator.allocate(64 * 4096, {}, kTag);
  void* c = allocator.allocate(64 * 4096, {}, kTag);
  void* d = allocator.allocate(63 * 4096, {}, kTag);
  allocator.free(a, {});
  allocator.free(c, {});
  allocator.trim();
  allocator.free(b, {});  // now: hole, free, hole, live: a request of three blocks maps two ranges
  (void)d;
  source.throws = 1;
  const std::size_t reserved = source.reserved;
  EXPECT_THROW(allocator.allocate(3 * 64 * 4096, {}, kTag), Error);
  EXPECT_EQ(source.reserved, reserved);
  EXPECT_EQ(allocator.stats().pool_bytes, reserved);
  EXPECT_EQ(allocator.check_invariants(), "");
  source.throws = 1000;
  EXPECT_EQ(allocator.allocate(3 * 64 * 4096, {}, kTag), a);
}

TEST(AllocatorPages, pages_of_unfinished_work_are_unmapped_only_when_it_is_done) {
  const auto streams = std::make_shared<SimulatedStreams>(2);
  const auto log = std::make_shared<PageLog>();
  BfcAllocator allocator(std::make_unique<TestPages>(log, FakePages{.page_bytes = kPage}), Device::cuda(0),
                         {.limit_bytes = 8 * kMiB}, std::make_unique<SimulatedOracle>(streams));
  const Stream stream = SimulatedStreams::stream(1);
  void* low = allocator.allocate(2 * kMiB, stream, kTag);
  void* keep = allocator.allocate(2 * kMiB, stream, kTag);
  void* high = allocator.allocate(2 * kMiB, stream, kTag);
  void* last = allocator.allocate(2 * kMiB, stream, kTag);
  const testing::Point work = streams->submit(stream);
  log->on_unmap = [&](AddressRange) { EXPECT_TRUE(streams->finished(work)) << "unmapped under running work"; };
  allocator.free(low, stream);
  allocator.free(high, stream);
  EXPECT_NE(allocator.allocate(4 * kMiB, stream, kTag), nullptr) << "the host waits, for there is no other way";
  EXPECT_GT(log->unmaps, 0u);
  EXPECT_GT(streams->host_waits, 0u);
  (void)keep, (void)last;
}

}  // namespace
}  // namespace bantam::allocator_pages_test
