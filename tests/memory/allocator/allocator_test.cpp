// One stream: rounding, placement, merging, wrong addresses, statistics.
#include "bantam/memory/allocator/allocator.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "bantam/base/error.h"

namespace bantam::allocator_test {
namespace {

constexpr AllocationTag kTag{Category::activation, "test"};
constexpr std::size_t kMax = std::numeric_limits<std::size_t>::max();

class AllocatorTest : public ::testing::Test {
 protected:
  void* get(std::size_t bytes) { return allocator_.allocate(bytes, {}, kTag); }
  void put(void* address) { allocator_.free(address, {}); }
  void TearDown() override { EXPECT_EQ(allocator_.check_invariants(), ""); }
  static std::uintptr_t number(void* address) { return reinterpret_cast<std::uintptr_t>(address); }

  BfcAllocator allocator_{make_fake_source(), Device::cpu(), {.name = "test", .limit_bytes = 64u << 20}};
};

TEST_F(AllocatorTest, sizes_are_rounded_to_256_and_no_more) {
  EXPECT_EQ(get(0), nullptr);
  std::vector<std::size_t> sizes = {1, 255, 256, 257};
  for (int n = 9; n < 22; ++n)
    for (const int off : {-1, 0, 1}) sizes.push_back((std::size_t{1} << n) + static_cast<std::size_t>(off));
  for (const std::size_t size : sizes) {
    void* address = get(size);
    EXPECT_EQ(number(address) % 256, 0u);
    EXPECT_EQ(allocator_.allocated_bytes(address), (size + 255) / 256 * 256) << size;
    EXPECT_EQ(allocator_.check_invariants(), "");
  }
}

TEST_F(AllocatorTest, sizes_near_the_largest_number_do_not_wrap) {
  void* before = get(1000);
  std::vector<std::size_t> sizes = {kMax / 2, kMax / 2 + 1, kMax - 4096, (64u << 20) + 1};
  for (std::size_t below = 0; below <= 256; ++below) sizes.push_back(kMax - below);
  const MemoryStats stats = allocator_.stats();
  for (const std::size_t size : sizes) {
    try {
      get(size);
      ADD_FAILURE() << "allocated " << size;
    } catch (const OutOfMemory& error) {
      EXPECT_EQ(error.facts().requested_bytes, size);
    }
    EXPECT_EQ(allocator_.stats().in_use_bytes, stats.in_use_bytes);
    EXPECT_EQ(allocator_.stats().pool_bytes, stats.pool_bytes);
  }
  EXPECT_NE(get(1000), before);
  BfcAllocator unlimited(make_fake_source(), Device::cpu(), {});
  for (std::size_t below = 0; below <= 256; ++below)
    EXPECT_THROW(unlimited.allocate(kMax - below, {}, kTag), OutOfMemory) << below;
  EXPECT_EQ(unlimited.check_invariants(), "");
}

TEST_F(AllocatorTest, the_smallest_chunk_that_fits_is_taken_and_of_equals_the_lowest) {
  std::vector<void*> blocks;
  for (const std::size_t size : {4096, 256, 2048, 256, 1024, 256, 2048, 256}) blocks.push_back(get(size));
  put(blocks[6]);
  put(blocks[0]);
  put(blocks[4]);
  put(blocks[2]);
  EXPECT_EQ(get(1500), blocks[2]) << "of the two of 2048 the lower";
  EXPECT_EQ(get(1024), blocks[4]);
  EXPECT_EQ(get(2048), blocks[6]);
  EXPECT_EQ(get(512), static_cast<char*>(blocks[2]) + 1536) << "what 1500 left";
  EXPECT_EQ(get(512), blocks[0]);
}

TEST_F(AllocatorTest, when_all_is_freed_each_region_is_one_chunk_and_the_first_address_comes_again) {
  std::vector<void*> order;
  std::vector<std::size_t> sizes = {300, 5000, 1 << 20, 77, 3 << 20, 256, 100000};
  std::uint64_t pool = 0;
  for (int step = 0; step < 6; ++step) {
    std::vector<void*> blocks;
    for (const std::size_t size : sizes) blocks.push_back(get(size));
    if (step == 0) order = blocks;
    EXPECT_EQ(blocks, order) << "the same requests get the same addresses, step " << step;
    for (std::size_t i = 0; i < blocks.size(); ++i)
      put(blocks[(i * 3 + static_cast<std::size_t>(step)) % blocks.size()]);
    const MemoryStats stats = allocator_.stats();
    EXPECT_EQ(stats.free_chunks, stats.regions);
    EXPECT_EQ(stats.in_use_bytes, 0u);
    if (step == 0) pool = stats.pool_bytes;
    EXPECT_EQ(stats.pool_bytes, pool);
    EXPECT_EQ(allocator_.check_invariants(), "");
  }
}

TEST_F(AllocatorTest, wrong_addresses_are_refused_and_change_nothing) {
  void* live = get(1000);
  void* gone = get(1000);
  put(gone);
  put(nullptr);
  int foreign = 0;
  const struct {
    void* address;
    const char* word;
  } cases[] = {{gone, "free memory"},
               {static_cast<char*>(live) + 256, "256 bytes inside"},
               {static_cast<char*>(live) + 1, "1 bytes inside"},
               {&foreign, "not allocated here"}};
  for (const auto& wrong : cases) {
    const MemoryStats before = allocator_.stats();
    for (const bool is_free : {true, false}) {
      try {
        is_free ? put(wrong.address) : static_cast<void>(allocator_.allocated_bytes(wrong.address));
        ADD_FAILURE() << "accepted: " << wrong.word;
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find(wrong.word), std::string::npos) << error.what();
      }
    }
    EXPECT_EQ(allocator_.stats().frees, before.frees);
    EXPECT_EQ(allocator_.stats().in_use_bytes, before.in_use_bytes);
  }
  EXPECT_THROW(allocator_.allocated_bytes(nullptr), Error);
  put(live);
  EXPECT_THROW(put(live), Error);
}

TEST_F(AllocatorTest, statistics_reconcile_to_the_byte) {
  void* a = allocator_.allocate(1000, {}, {Category::parameter, "a"});
  allocator_.allocate(500, {}, {Category::gradient, "b"});
  void* c = allocator_.allocate(3000, {}, {Category::parameter, "a"});
  MemoryStats stats = allocator_.stats();
  EXPECT_EQ(stats.requested_bytes, 4500u);
  EXPECT_EQ(stats.in_use_bytes, 1024u + 512 + 3072);
  EXPECT_EQ(stats.by_category[Category::parameter], 4096u);
  EXPECT_EQ(stats.by_category[Category::gradient], 512u);
  EXPECT_EQ(stats.live_allocations, 3u);
  put(c);
  put(a);
  allocator_.allocate(256, {}, {Category::input, "d"});
  stats = allocator_.stats();
  EXPECT_EQ(stats.peak_bytes, 4608u);
  EXPECT_EQ(stats.by_category_at_peak[Category::parameter], 4096u);
  EXPECT_EQ(stats.by_category_at_peak[Category::input], 0u);
  EXPECT_EQ(stats.by_category_at_peak.total(), stats.peak_bytes);
  EXPECT_EQ(stats.by_category.total(), stats.in_use_bytes);
  EXPECT_EQ(stats.allocations, 4u);
  EXPECT_EQ(stats.frees, 2u);
  EXPECT_EQ(stats.largest_free_bytes, stats.pool_bytes - 1024 - 512);
  allocator_.reset_peak();
  stats = allocator_.stats();
  EXPECT_EQ(stats.peak_bytes, 768u);
  EXPECT_EQ(stats.by_category_at_peak[Category::input], 256u);
}

TEST_F(AllocatorTest, holders_are_grouped_by_name_and_category_largest_first) {
  const std::string same_text = "conv";  // another address than the literal below: names are compared, not pointers
  allocator_.allocate(1000, {}, {Category::parameter, "conv"});
  allocator_.allocate(1000, {}, {Category::parameter, same_text.c_str()});
  allocator_.allocate(5000, {}, {Category::activation, "conv"});
  allocator_.allocate(10, {}, {Category::other, nullptr});
  const auto holders = allocator_.holders();
  ASSERT_EQ(holders.size(), 3u);
  EXPECT_EQ(holders[0].category, Category::activation);
  EXPECT_EQ(holders[0].bytes, 5120u);
  EXPECT_EQ(holders[1].owner, "conv");
  EXPECT_EQ(holders[1].bytes, 2048u);
  EXPECT_EQ(holders[1].allocations, 2u);
  EXPECT_EQ(holders[2].owner, "");
  std::uint64_t sum = 0;
  for (const Holder& holder : holders) sum += holder.bytes;
  EXPECT_EQ(sum, allocator_.stats().in_use_bytes);
}

TEST_F(AllocatorTest, host_memory_can_be_written_end_to_end) {
  BfcAllocator host(make_host_source(), Device::cpu(), {});
  std::vector<unsigned char*> blocks;
  for (int i = 0; i < 40; ++i) {
    const std::size_t size = 1000u * static_cast<std::size_t>(i * i + 1);
    blocks.push_back(static_cast<unsigned char*>(host.allocate(size, {}, kTag)));
    std::memset(blocks.back(), i + 1, size);
  }
  for (int i = 0; i < 40; ++i) {
    const std::size_t size = 1000u * static_cast<std::size_t>(i * i + 1);
    EXPECT_EQ(std::count(blocks[static_cast<std::size_t>(i)], blocks[static_cast<std::size_t>(i)] + size, i + 1),
              static_cast<std::ptrdiff_t>(size));
  }
  EXPECT_EQ(host.device(), Device::cpu());
}

}  // namespace
}  // namespace bantam::allocator_test
