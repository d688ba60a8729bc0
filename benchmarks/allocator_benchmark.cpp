// Time of an allocation and its free: one block again and again, and a mix of sizes among many live blocks.
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "bantam/memory/allocator/allocator.h"
#include "bantam/memory/pages/paged_source.h"

namespace bantam {
namespace {

const Stream kStream;  // long in memory, as a program's streams are
constexpr AllocationTag kTag{Category::activation, "benchmark"};

void pair_of_1_mib(benchmark::State& state) {
  BfcAllocator allocator(make_device_source(Device::meta_of(Device::cuda())), Device::cpu(), {});
  for (auto _ : state) {
    void* block = allocator.allocate(1 << 20, kStream, kTag);
    benchmark::DoNotOptimize(block);
    allocator.free(block, kStream);
  }
}

// One step frees a random block of 512 live ones and allocates another; sizes are uniform in their logarithm.
void mixed_256_to_4_mib(benchmark::State& state) {
  BfcAllocator allocator(make_device_source(Device::meta_of(Device::cuda())), Device::cpu(), {});
  std::mt19937 random(1);
  std::vector<std::size_t> sizes(1 << 16);
  for (std::size_t& size : sizes) size = (std::size_t{256} << random() % 14) + random() % 256 * (1 + random() % 16);
  std::vector<std::uint32_t> victims(1 << 16);
  for (std::uint32_t& victim : victims) victim = random() % 512;
  std::vector<void*> live(512);
  for (std::size_t i = 0; i < live.size(); ++i) live[i] = allocator.allocate(sizes[i], kStream, kTag);
  std::size_t step = 0;
  for (auto _ : state) {
    void*& block = live[victims[step & 0xffff]];
    allocator.free(block, kStream);
    block = allocator.allocate(sizes[step & 0xffff], kStream, kTag);
    ++step;
  }
  for (void* block : live) allocator.free(block, kStream);
}

BENCHMARK(pair_of_1_mib);
BENCHMARK(mixed_256_to_4_mib);

}  // namespace
}  // namespace bantam

BENCHMARK_MAIN();
