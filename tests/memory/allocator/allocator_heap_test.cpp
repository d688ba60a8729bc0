// The fast path takes no heap memory: after the first rounds, allocations and frees make not one call of operator new.
#include <atomic>
#include <cstdlib>
#include <new>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/memory/allocator/accounting.h"
#include "bantam/memory/allocator/allocator.h"
#include "bantam/memory/pages/paged_source.h"

namespace {

std::atomic<std::uint64_t> heap_calls{0};

void* counted(std::size_t bytes) {
  ++heap_calls;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void* counted(std::size_t bytes, std::align_val_t alignment) {
  ++heap_calls;
  const auto step = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(step, (bytes + step - 1) / step * step)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) { return counted(bytes, alignment); }
void* operator new[](std::size_t bytes, std::align_val_t alignment) { return counted(bytes, alignment); }
// Standard algorithms ask for their buffers so, and give them back to the operator below.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++heap_calls;
  return std::malloc(bytes > 0 ? bytes : 1);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace bantam::allocator_heap_test {
namespace {

constexpr AllocationTag kTag{Category::activation, "test"};

TEST(AllocatorHeap, the_count_counts) {
  const std::uint64_t before = heap_calls;
  const std::vector<int> some(10);
  EXPECT_EQ(heap_calls, before + 1);
}

TEST(AllocatorHeap, the_fast_path_takes_no_heap_memory) {
  BfcAllocator allocator(make_device_source(Device::meta_of(Device::cuda())), Device::cpu(), {});
  std::mt19937 random(3);
  std::vector<void*> live(512);
  const auto step = [&] {
    void*& block = live[random() % live.size()];
    allocator.free(block, {});
    block = nullptr;
    block = allocator.allocate((std::size_t{256} << random() % 14) + random() % 256, {}, kTag);
  };
  for (int i = 0; i < 20000; ++i) step();
  const MemoryStats before_stats = allocator.stats();
  std::uint64_t slow = 0;  // steps that took memory from the source, and may take heap memory
  for (int i = 0; i < 100000; ++i) {
    const std::uint64_t pool = allocator.stats().pool_bytes;
    const std::uint64_t before = heap_calls;
    step();
    const std::uint64_t calls = heap_calls - before;
    if (allocator.stats().pool_bytes != pool)
      ++slow;
    else
      ASSERT_EQ(calls, 0u) << "step " << i;
  }
  EXPECT_LT(slow, 100u) << "the pool should have settled at " << before_stats.pool_bytes;
}

// Frees come from destructors: where they are traced, the allocations before made the room.
TEST(AllocatorHeap, frees_take_no_heap_memory_where_they_are_traced) {
  BfcAllocator allocator(make_device_source(Device::meta_of(Device::cuda())), Device::cpu(), {});
  AllocationTrace trace;
  std::vector<void*> live;
  live.push_back(allocator.allocate(256, {}, kTag));
  allocator.set_trace(&trace);
  for (int i = 0; i < 1000; ++i) live.push_back(allocator.allocate(256, {}, kTag));
  const std::uint64_t before = heap_calls;
  for (void* block : live) allocator.free(block, {});
  EXPECT_EQ(heap_calls, before);
  EXPECT_EQ(trace.events().size(), 2001u);
}

}  // namespace
}  // namespace bantam::allocator_heap_test
