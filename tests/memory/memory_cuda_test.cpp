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
#include "bantam/memory/allocator.h"
#include "bantam/memory/process_memory.h"

namespace bantam {
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

TEST_F(MemoryCuda, the_process_is_counted_with_what_it_takes_and_gives_back) {
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
    const std::size_t pieces = 1 + random() % 6;
    auto* block = static_cast<unsigned char*>(buffers.device.allocate(pieces * kMiB, stream, kTag));
    for (std::size_t i = 0; i < pieces; ++i)
      copy_bytes(block + i * kMiB, fill[static_cast<std::size_t>(round) % 256], kMiB, stream);
    for (std::size_t i = 0; i < 4; ++i)  // samples from all over the block
      copy_bytes(results + static_cast<std::size_t>(round) * 4096 + i * 1024,
                 block + (pieces * kMiB - 1024) / 3 * i / 256 * 256, 1024, stream);
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

}  // namespace
}  // namespace bantam
