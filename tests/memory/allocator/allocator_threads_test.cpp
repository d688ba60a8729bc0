// Many threads on one allocator: blocks stay whole and the totals are those of the same work done serially.
#include <cstring>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "bantam/memory/allocator/allocator.h"

namespace bantam::allocator_threads_test {
namespace {

constexpr int kThreads = 4;
constexpr int kSteps = 3000;

struct Block {
  unsigned char* address;
  std::size_t size;
  unsigned char value;
};

// A thread's work: a pure function of its number, save for addresses. Returns what it still holds.
std::vector<Block> work(BfcAllocator& allocator, unsigned thread, int& damaged) {
  std::mt19937 random(thread);
  std::vector<Block> blocks;
  const AllocationTag tag{static_cast<Category>(thread % kCategories), "thread"};
  for (int step = 0; step < kSteps; ++step) {
    if (random() % 5 < 3 || blocks.empty()) {
      const std::size_t size = 1 + random() % 20000;
      const auto value = static_cast<unsigned char>(random());
      auto* address = static_cast<unsigned char*>(allocator.allocate(size, {}, tag));
      std::memset(address, value, size);
      blocks.push_back({address, size, value});
    } else {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      const Block block = blocks.back();
      blocks.pop_back();
      for (std::size_t i = 0; i < block.size; ++i) damaged += block.address[i] != block.value ? 1 : 0;
      allocator.free(block.address, {});
    }
    if (step % 500 == 0) {
      const MemoryStats stats = allocator.stats();
      damaged += stats.in_use_bytes == stats.by_category.total() ? 0 : 1;
      if (thread == 0) (void)allocator.trim();
    }
  }
  return blocks;
}

TEST(AllocatorThreads, totals_are_those_of_serial_work) {
  BfcAllocator serial(make_host_source(), Device::cpu(), {});
  BfcAllocator parallel(make_host_source(), Device::cpu(), {});
  int damaged[kThreads] = {};
  std::vector<Block> blocks[kThreads];
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back([&, i] { blocks[i] = work(parallel, i, damaged[i]); });
  for (std::thread& thread : threads) thread.join();
  for (unsigned i = 0; i < kThreads; ++i) {
    EXPECT_EQ(damaged[i], 0) << "thread " << i;
    int ignored = 0;
    EXPECT_EQ(work(serial, i, ignored).size(), blocks[i].size());
  }
  const MemoryStats a = serial.stats(), b = parallel.stats();
  EXPECT_GT(b.allocations, 1000u);
  EXPECT_EQ(a.allocations, b.allocations);
  EXPECT_EQ(a.frees, b.frees);
  EXPECT_EQ(a.in_use_bytes, b.in_use_bytes) << "bytes in use depend on the requests only";
  EXPECT_EQ(a.requested_bytes, b.requested_bytes);
  EXPECT_EQ(a.by_category.bytes, b.by_category.bytes);
  EXPECT_EQ(parallel.check_invariants(), "");
  for (auto& blocks : blocks)
    for (const Block& block : blocks) parallel.free(block.address, {});
  EXPECT_EQ(parallel.stats().free_chunks, parallel.stats().regions);
}

}  // namespace
}  // namespace bantam::allocator_threads_test
