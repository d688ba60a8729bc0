// On a GPU: streams run in order, events tell the truth, copies arrive, and no stream sees another's canaries
// overwritten.
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "bantam/base/error.h"
#include "bantam/memory/allocator/allocator.h"
#include "bantam/memory/device/captured_work.h"
#include "bantam/memory/device/device.h"
#include "bantam/memory/device/stream_clock.h"
#include "bantam/memory/device/trace_range.h"
#include "bantam/memory/pages/paged_source.h"

namespace bantam::memory_cuda_test {
namespace {

constexpr AllocationTag kTag{Category::other, "test"};
constexpr std::size_t kMiB = 1u << 20;

class MemoryCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device: skipped";
  }
  const Device gpu_ = Device::cuda(0);
};

/// Host memory for copies, and a device allocator, both from Bantam.
struct Buffers {
  explicit Buffers(Device gpu, AllocatorOptions options = {})
      : pinned(make_pinned_source(), Device::cpu(), {.name = "pinned"}),
        device(make_cuda_source(gpu), gpu, std::move(options)) {}
  unsigned char* host(std::size_t bytes) { return static_cast<unsigned char*>(pinned.allocate(bytes, Stream{}, kTag)); }
  BfcAllocator pinned;
  BfcAllocator device;
};

TEST_F(MemoryCuda, facts_are_plausible) {
  const DeviceInfo info = device_info(gpu_);
  EXPECT_EQ(info.device, gpu_);
  EXPECT_FALSE(info.name.empty());
  EXPECT_GE(info.compute_capability, 75);
  EXPECT_GT(info.multiprocessors, 0);
  EXPECT_GT(info.free_bytes, 0u);
  EXPECT_LE(info.free_bytes, info.total_bytes);
}

TEST_F(MemoryCuda, the_process_is_counted_with_what_it_allocates_and_releases) {
  const ProcessMeter meter(gpu_);
  make_device_ready(gpu_);
  const auto source = make_cuda_source(gpu_);
  const ProcessMemory before = meter.read();
  EXPECT_GT(before.bytes, 32 * kMiB) << "a context is there";
  void* memory = source->acquire(256 * kMiB);
  ASSERT_NE(memory, nullptr);
  const ProcessMemory during = meter.read();
  EXPECT_EQ(during.method, before.method);
  source->release(memory, 256 * kMiB);
  const ProcessMemory after = meter.read();
  if (before.method == ProcessMemoryMethod::card) GTEST_SKIP() << "others on the card may move meanwhile";
  EXPECT_EQ(during.bytes - before.bytes, 256 * kMiB);
  EXPECT_EQ(after.bytes, before.bytes);
  EXPECT_EQ(driver_process_bytes(gpu_, getpid()), after.bytes);
  EXPECT_GE(card_used_bytes(gpu_).value_or(0), after.bytes);
}

TEST_F(MemoryCuda, copies_and_zeroes_arrive_in_stream_order) {
  Buffers buffers(gpu_);
  const OwnedStream stream(gpu_);
  const std::size_t bytes = 3 * kMiB + 5;
  auto* from = buffers.host(bytes);
  auto* to = buffers.host(bytes);
  std::mt19937 random(3);
  std::generate(from, from + bytes, [&] { return static_cast<unsigned char>(random()); });
  std::memset(to, 0x5a, bytes);
  auto* a = static_cast<unsigned char*>(buffers.device.allocate(bytes, stream.get(), kTag));
  auto* b = static_cast<unsigned char*>(buffers.device.allocate(bytes, stream.get(), kTag));
  copy_bytes(a, from, bytes, stream.get());
  copy_bytes(b, a, bytes, stream.get());
  zero_bytes(b + 100, 1000, stream.get());
  copy_bytes(to, b, bytes, stream.get());
  synchronize(stream.get());
  EXPECT_EQ(std::memcmp(to, from, 100), 0);
  EXPECT_EQ(std::count(to + 100, to + 1100, 0), 1000);
  EXPECT_EQ(std::memcmp(to + 1100, from + 1100, bytes - 1100), 0);
}

TEST_F(MemoryCuda, pageable_memory_can_be_copied_too) {
  Buffers buffers(gpu_);
  const OwnedStream stream(gpu_);
  std::vector<int> from(100000), to(100000, -1);
  std::iota(from.begin(), from.end(), 17);
  void* middle = buffers.device.allocate(from.size() * sizeof(int), stream.get(), kTag);
  copy_bytes(middle, from.data(), from.size() * sizeof(int), stream.get());
  copy_bytes(to.data(), middle, to.size() * sizeof(int), stream.get());
  synchronize(stream.get());
  EXPECT_EQ(to, from);
}

TEST_F(MemoryCuda, events_follow_their_streams) {
  Buffers buffers(gpu_);
  const OwnedStream a(gpu_), b(gpu_);
  const std::size_t bytes = 64 * kMiB;
  auto* host = buffers.host(bytes);
  auto* result = buffers.host(bytes);
  std::memset(host, 7, bytes);
  void* block = buffers.device.allocate(bytes, a.get(), kTag);
  Event event(gpu_);
  EXPECT_TRUE(event.done()) << "nothing recorded";
  for (int i = 0; i < 20; ++i) copy_bytes(block, host, bytes, a.get());
  event.record(a.get());
  event.make_wait(b.get());
  copy_bytes(result, block, bytes, b.get());
  synchronize(b.get());
  EXPECT_TRUE(event.done()) << "stream b waited for it";
  EXPECT_EQ(std::count(result, result + bytes, 7), static_cast<std::ptrdiff_t>(bytes));
  event.record(a.get());
  event.synchronize();
  EXPECT_TRUE(event.done());
  EXPECT_THROW(event.record(Stream{}), DeviceError);
}

TEST_F(MemoryCuda, marks_tell_how_long_the_device_worked) {
  Buffers buffers(gpu_);
  const OwnedStream stream(gpu_);
  const TraceRange range(gpu_, "marks");
  auto* memory = static_cast<unsigned char*>(buffers.device.allocate(512 * kMiB, stream.get(), kTag));
  StreamClock clock(stream.get());
  EXPECT_EQ(clock.mark(), 0);
  zero_bytes(memory, 512 * kMiB, stream.get());
  EXPECT_EQ(clock.mark(), 1);
  EXPECT_EQ(clock.mark(), 2);
  const std::vector<std::int64_t> times = clock.times();
  ASSERT_EQ(times.size(), 3u);
  EXPECT_EQ(times[0], 0);
  EXPECT_GT(times[1], 30'000) << "at most 16 TiB a second";
  EXPECT_GE(times[2], times[1]);
  EXPECT_LT(times[2] - times[1], times[1]);
  buffers.device.free(memory, stream.get());
}

TEST_F(MemoryCuda, streams_have_handles_and_survive_moves) {
  OwnedStream a(gpu_);
  const Stream stream = a.get();
  EXPECT_NE(stream.handle, nullptr);
  const OwnedStream b(std::move(a));
  EXPECT_EQ(b.get().handle, stream.handle);
  synchronize(b.get());
  Event event(gpu_);
  Event moved(std::move(event));
  moved.record(b.get());
  moved.synchronize();
  const DeviceScope scope(gpu_);
}

TEST_F(MemoryCuda, too_much_is_refused_and_leaves_the_device_usable) {
  const auto source = make_cuda_source(gpu_);
  EXPECT_EQ(source->acquire(0), nullptr);
  EXPECT_EQ(source->acquire(device_info(gpu_).total_bytes * 2), nullptr);
  void* memory = source->acquire(kMiB);
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 256, 0u);
  source->release(memory, kMiB);
  Buffers buffers(gpu_, {.name = "cuda:0"});
  const OwnedStream stream(gpu_);
  EXPECT_THROW(buffers.device.allocate(device_info(gpu_).total_bytes * 2, stream.get(), kTag), OutOfMemory);
  EXPECT_NE(buffers.device.allocate(kMiB, stream.get(), kTag), nullptr);
}

TEST_F(MemoryCuda, trim_gives_memory_back_to_the_device) {
  Buffers buffers(gpu_);
  const OwnedStream stream(gpu_);
  void* block = buffers.device.allocate(512 * kMiB, stream.get(), kTag);
  zero_bytes(block, 512 * kMiB, stream.get());
  buffers.device.free(block, stream.get());
  EXPECT_EQ(buffers.device.trim(), 512 * kMiB);
  EXPECT_EQ(buffers.device.stats().pool_bytes, 0u);
}

TEST_F(MemoryCuda, a_wrong_call_is_an_error_that_names_the_call) {
  Buffers buffers(gpu_);
  const OwnedStream stream(gpu_);
  auto* block = static_cast<unsigned char*>(buffers.device.allocate(kMiB, stream.get(), kTag));
  try {
    zero_bytes(nullptr, 256, stream.get());
    ADD_FAILURE() << "cleared memory at null";
  } catch (const CudaError& error) {
    EXPECT_NE(std::string(error.what()).find("cudaMemsetAsync failed: cudaError"), std::string::npos) << error.what();
  }
  zero_bytes(block, kMiB, stream.get());
  synchronize(stream.get());
}

// Every block is filled with its own number in its stream, copied out in its stream, and checked at the end: a block
// handed to another stream too early would show the other's number.
TEST_F(MemoryCuda, canaries_survive_many_streams_in_little_memory) {
  constexpr int kStreams = 4, kRounds = 600;
  Buffers buffers(gpu_, {.limit_bytes = 24 * kMiB, .first_region_bytes = 4 * kMiB});
  std::vector<std::unique_ptr<OwnedStream>> streams;
  for (int i = 0; i < kStreams; ++i) streams.push_back(std::make_unique<OwnedStream>(gpu_));
  std::mt19937 random(17);
  std::vector<unsigned char*> fill;
  for (int value = 0; value < 256; ++value) {
    fill.push_back(buffers.host(kMiB));
    std::memset(fill.back(), value, kMiB);
  }
  auto* results = buffers.host(kRounds * std::size_t{4096});
  for (int round = 0; round < kRounds; ++round) {
    const Stream stream = streams[random() % kStreams]->get();
    const std::size_t chunks = 1 + random() % 6;
    auto* block = static_cast<unsigned char*>(buffers.device.allocate(chunks * kMiB, stream, kTag));
    for (std::size_t i = 0; i < chunks; ++i)
      copy_bytes(block + i * kMiB, fill[static_cast<std::size_t>(round) % 256], kMiB, stream);
    for (std::size_t i = 0; i < 4; ++i)  // samples from all over the block
      copy_bytes(results + static_cast<std::size_t>(round) * 4096 + i * 1024,
                 block + (chunks * kMiB - 1024) / 3 * i / 256 * 256, 1024, stream);
    buffers.device.free(block, stream);
  }
  for (const auto& stream : streams) synchronize(stream->get());
  for (std::size_t round = 0; round < kRounds; ++round)
    ASSERT_EQ(std::count(results + round * 4096, results + (round + 1) * 4096, static_cast<int>(round % 256)), 4096)
        << "round " << round;
  EXPECT_LE(buffers.device.stats().peak_pool_bytes, 24 * kMiB);
  EXPECT_EQ(buffers.device.check_invariants(), "");
}

TEST_F(MemoryCuda, staging_memory_is_not_reused_by_the_host_while_a_copy_reads_it) {
  Buffers buffers(gpu_);
  BfcAllocator staging(make_pinned_source(), Device::cpu(), {.limit_bytes = 64 * kMiB, .growth = false});
  const OwnedStream stream(gpu_);
  constexpr std::size_t kPart = 16 * kMiB;
  constexpr int kParts = 24;
  auto* device = static_cast<unsigned char*>(buffers.device.allocate(kParts * kPart, stream.get(), kTag));
  for (int part = 0; part < kParts; ++part) {
    void* host = staging.allocate(kPart, Stream{}, kTag);  // written by the host now
    std::memset(host, part + 1, kPart);
    copy_bytes(device + static_cast<std::size_t>(part) * kPart, host, kPart, stream.get());
    staging.free(host, stream.get());  // read by the stream later
  }
  auto* back = buffers.host(kParts * kPart);
  copy_bytes(back, device, kParts * kPart, stream.get());
  synchronize(stream.get());
  for (std::size_t part = 0; part < kParts; ++part)
    EXPECT_EQ(std::count(back + part * kPart, back + (part + 1) * kPart, static_cast<int>(part) + 1),
              static_cast<std::ptrdiff_t>(kPart));
}

/// An allocator on CUDA virtual memory; the tests skip visibly where the device has none.
class PagesCuda : public MemoryCuda {
 protected:
  void SetUp() override {
    MemoryCuda::SetUp();
    if (IsSkipped()) return;
    if (make_paged_cuda_source(gpu_) == nullptr) GTEST_SKIP() << "no CUDA virtual memory: skipped";
  }
  std::unique_ptr<BfcAllocator> paged(AllocatorOptions options = {}) const {
    return std::make_unique<BfcAllocator>(make_paged_cuda_source(gpu_), gpu_, std::move(options));
  }
  /// Reads a block back and counts the bytes that are `value`.
  std::size_t count(const void* block, std::size_t bytes, int value, Stream stream) {
    std::vector<unsigned char> host(bytes);
    copy_bytes(host.data(), block, bytes, stream);
    synchronize(stream);
    return static_cast<std::size_t>(std::count(host.begin(), host.end(), static_cast<unsigned char>(value)));
  }
  /// Fills a block with `value`, in stream order.
  void fill(void* block, std::size_t bytes, int value, Stream stream) {
    const std::vector<unsigned char> host(bytes, static_cast<unsigned char>(value));
    copy_bytes(block, host.data(), bytes, stream);
    synchronize(stream);
  }
};

TEST_F(PagesCuda, sources_map_refuse_and_give_back) {
  const auto source = make_paged_cuda_source(gpu_);
  const std::size_t page = source->page_bytes();
  const AddressRange all = source->addresses();
  EXPECT_EQ(page % (2 * kMiB), 0u);
  EXPECT_EQ(all.begin % page, 0u);
  EXPECT_GE(all.bytes, 2 * device_info(gpu_).total_bytes);
  const std::size_t too_much = device_info(gpu_).total_bytes / page * page + page;
  EXPECT_FALSE(source->map(all.begin, too_much)) << "more than the card has";
  const std::uint64_t before = device_info(gpu_).free_bytes;
  ASSERT_TRUE(source->map(all.begin, 128 * page)) << "what failed left nothing mapped";
  const std::uint64_t during = device_info(gpu_).free_bytes;
  EXPECT_LE(during + 128 * page, before + 64 * kMiB) << "others may use the card, but not by so much";
  source->unmap(all.begin + page, 126 * page);
  EXPECT_GE(device_info(gpu_).free_bytes + 64 * kMiB, during + 126 * page);
  ASSERT_TRUE(source->map(all.begin + page, page)) << "pages come back at their addresses";
  source->unmap(all.begin, 2 * page);
  source->unmap(all.begin + 127 * page, page);
}

TEST_F(PagesCuda, trim_gives_pages_back_to_the_card_and_live_memory_stays) {
  const auto allocator = paged();
  const OwnedStream stream(gpu_);
  const Stream s = stream.get();
  void* low = allocator->allocate(256 * kMiB, s, kTag);
  void* keep = allocator->allocate(3 * kMiB, s, kTag);
  void* high = allocator->allocate(256 * kMiB, s, kTag);
  fill(keep, 3 * kMiB, 0x6b, s);
  zero_bytes(low, 256 * kMiB, s);
  zero_bytes(high, 256 * kMiB, s);
  allocator->free(low, s);
  allocator->free(high, s);
  const std::uint64_t before = device_info(gpu_).free_bytes;
  const std::uint64_t released = allocator->trim();
  EXPECT_GE(released, 510 * kMiB);
  EXPECT_GE(device_info(gpu_).free_bytes + 64 * kMiB, before + released);
  EXPECT_EQ(count(keep, 3 * kMiB, 0x6b, s), 3 * kMiB) << "live memory is where it was";
  EXPECT_EQ(allocator->allocate(256 * kMiB, s, kTag), low) << "mapped again at the same address";
  fill(low, kMiB, 0x11, s);
  EXPECT_EQ(count(low, kMiB, 0x11, s), kMiB);
  EXPECT_EQ(allocator->check_invariants(), "");
}

// What a region allocator cannot do: see AllocatorPages.one_pinned_block_does_not_defeat_a_large_request.
TEST_F(PagesCuda, one_pinned_block_does_not_defeat_a_large_request) {
  const auto allocator = paged({.limit_bytes = 512 * kMiB});
  const OwnedStream stream(gpu_);
  const Stream s = stream.get();
  std::vector<void*> blocks;
  for (int i = 0; i < 128; ++i) blocks.push_back(allocator->allocate(4 * kMiB, s, kTag));
  fill(blocks[64], 4 * kMiB, 0x5d, s);
  for (std::size_t i = 0; i < 128; ++i) {
    if (i == 64) continue;
    zero_bytes(blocks[i], 4 * kMiB, s);  // work that may still run when its pages are asked for
    allocator->free(blocks[i], s);
  }
  void* large = allocator->allocate(508 * kMiB, s, kTag);
  zero_bytes(large, 508 * kMiB, s);
  EXPECT_EQ(count(blocks[64], 4 * kMiB, 0x5d, s), 4 * kMiB);
  EXPECT_EQ(allocator->stats().peak_pool_bytes, 512 * kMiB);
  EXPECT_THROW(allocator->allocate(1, s, kTag), OutOfMemory);
}

TEST_F(PagesCuda, canaries_survive_streams_trims_and_limits) {
  constexpr int kStreams = 3, kRounds = 400;
  const auto allocator = paged({.limit_bytes = 32 * kMiB});
  BfcAllocator pinned(make_pinned_source(), Device::cpu(), {.name = "pinned"});
  std::vector<std::unique_ptr<OwnedStream>> streams;
  for (int i = 0; i < kStreams; ++i) streams.push_back(std::make_unique<OwnedStream>(gpu_));
  std::mt19937 random(23);
  std::vector<unsigned char*> fills;
  for (int value = 0; value < 256; ++value) {
    fills.push_back(static_cast<unsigned char*>(pinned.allocate(kMiB, Stream{}, kTag)));
    std::memset(fills.back(), value, kMiB);
  }
  auto* results = static_cast<unsigned char*>(pinned.allocate(kRounds * std::size_t{4096}, Stream{}, kTag));
  for (int round = 0; round < kRounds; ++round) {
    const Stream stream = streams[random() % kStreams]->get();
    const std::size_t chunks = 1 + random() % 8;
    auto* block = static_cast<unsigned char*>(allocator->allocate(chunks * kMiB, stream, kTag));
    for (std::size_t i = 0; i < chunks; ++i)
      copy_bytes(block + i * kMiB, fills[static_cast<std::size_t>(round) % 256], kMiB, stream);
    for (std::size_t i = 0; i < 4; ++i)
      copy_bytes(results + static_cast<std::size_t>(round) * 4096 + i * 1024,
                 block + (chunks * kMiB - 1024) / 3 * i / 256 * 256, 1024, stream);
    allocator->free(block, stream);
    if (round % 37 == 0) (void)allocator->trim();
    if (round % 23 == 0) allocator->set_limit((12 + random() % 20) * kMiB);
  }
  for (const auto& stream : streams) synchronize(stream->get());
  for (std::size_t round = 0; round < kRounds; ++round)
    ASSERT_EQ(std::count(results + round * 4096, results + (round + 1) * 4096, static_cast<int>(round % 256)), 4096)
        << "round " << round;
  EXPECT_LE(allocator->stats().peak_pool_bytes, 32 * kMiB);
  EXPECT_EQ(allocator->check_invariants(), "");
}

TEST_F(MemoryCuda, recorded_work_runs_when_it_is_launched_and_as_often) {
  const OwnedStream stream(gpu_);
  Buffers buffers(gpu_);
  unsigned char* host = buffers.host(256);
  auto* a = static_cast<unsigned char*>(buffers.device.allocate(256, stream.get(), kTag));
  auto* b = static_cast<unsigned char*>(buffers.device.allocate(256, stream.get(), kTag));
  const auto bring = [&](unsigned char value) {
    std::memset(host, value, 256);
    copy_bytes(a, host, 256, stream.get());
    synchronize(stream.get());
  };
  const auto seen = [&] {
    copy_bytes(host, b, 256, stream.get());
    synchronize(stream.get());
    return static_cast<int>(host[255]);
  };
  bring(1);
  copy_bytes(b, a, 256, stream.get());
  bring(2);
  const CapturedWork work(stream.get(), [&] { copy_bytes(b, a, 256, stream.get()); });
  EXPECT_EQ(seen(), 1) << "recorded, not run";
  work.launch();
  EXPECT_EQ(seen(), 2);
  bring(3);
  work.launch();
  EXPECT_EQ(seen(), 3);
  EXPECT_EQ(work.kernels(), 0);
  buffers.device.free(a, stream.get());
  buffers.device.free(b, stream.get());
  buffers.device.trim();
}

TEST_F(MemoryCuda, what_cannot_be_recorded_leaves_the_stream_as_it_was) {
  const OwnedStream stream(gpu_);
  EXPECT_THROW(CapturedWork(stream.get(), [&] { synchronize(stream.get()); }), CudaError);
  EXPECT_THROW(CapturedWork(stream.get(),
                            [&] {
                              try {
                                synchronize(stream.get());
                              } catch (const CudaError&) {  // swallowed by the program: the recording is still void
                              }
                            }),
               CudaError);
  EXPECT_THROW(CapturedWork(stream.get(), [] { throw DataError("the program's own"); }), DataError);
  synchronize(stream.get());
  const CapturedWork empty(stream.get(), [] {});
  empty.launch();
  synchronize(stream.get());
}

}  // namespace
}  // namespace bantam::memory_cuda_test
