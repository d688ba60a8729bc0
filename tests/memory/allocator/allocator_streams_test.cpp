// Several streams, simulated: who may have freed memory when, what is recorded, who waits.
#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/memory/allocator/allocator.h"
#include "tests/memory/simulated_streams.h"
#include "tests/memory/test_source.h"

namespace bantam::allocator_streams_test {
namespace {

using testing::SimulatedOracle;
using testing::SimulatedStreams;
using testing::SourceLog;
using testing::TestSource;

constexpr AllocationTag kTag{Category::activation, "test"};
constexpr std::size_t kMiB = 1u << 20;

class AllocatorStreamsTest : public ::testing::Test {
 protected:
  void make(AllocatorOptions options) {
    allocator_ = std::make_unique<BfcAllocator>(std::make_unique<TestSource>(log_, 0), Device::cuda(0), options,
                                                std::make_unique<SimulatedOracle>(streams_));
  }
  void SetUp() override { make({.limit_bytes = 8 * kMiB, .growth = false}); }
  void TearDown() override {
    EXPECT_EQ(allocator_->check_invariants(), "");
    streams_->run_all();
  }
  void* get(std::size_t bytes, Stream stream) { return allocator_->allocate(bytes, stream, kTag); }
  /// Submits one task to the stream, the block's last use, and frees the block after it.
  void use_and_put(void* block, Stream stream) {
    streams_->submit(stream);
    allocator_->free(block, stream);
  }

  std::shared_ptr<SimulatedStreams> streams_ = std::make_shared<SimulatedStreams>(2000);
  std::shared_ptr<SourceLog> log_ = std::make_shared<SourceLog>();
  std::unique_ptr<BfcAllocator> allocator_;
  const Stream a_ = SimulatedStreams::stream(1), b_ = SimulatedStreams::stream(2), c_ = SimulatedStreams::stream(3);
};

TEST_F(AllocatorStreamsTest, one_stream_reuses_at_once_and_records_nothing) {
  void* first = get(6 * kMiB, a_);
  for (int i = 0; i < 100; ++i) {
    use_and_put(first, a_);
    ASSERT_EQ(get(6 * kMiB, a_), first);
  }
  EXPECT_EQ(streams_->records, 0u);
}

TEST_F(AllocatorStreamsTest, another_stream_gets_memory_when_the_first_is_done) {
  void* block = get(3 * kMiB, a_);
  get(kMiB, b_);
  use_and_put(block, a_);
  void* elsewhere = get(3 * kMiB, b_);
  EXPECT_NE(elsewhere, block);
  use_and_put(elsewhere, b_);
  EXPECT_EQ(get(3 * kMiB, a_), block) << "the stream that freed it has it at once";
  use_and_put(block, a_);
  streams_->advance(1, 100);
  EXPECT_EQ(get(3 * kMiB + 256, b_), elsewhere) << "its own memory with the idle rest";
  EXPECT_EQ(get(3 * kMiB, b_), block) << "done: it serves another stream";
  EXPECT_EQ(streams_->device_waits + streams_->host_waits, 0u);
}

TEST_F(AllocatorStreamsTest, the_first_streams_frees_are_remembered_when_a_second_appears) {
  void* block = get(8 * kMiB, a_);
  use_and_put(block, a_);
  EXPECT_EQ(streams_->records, 0u);
  EXPECT_EQ(get(8 * kMiB, b_), block) << "nothing else is left: the stream waits on the device";
  EXPECT_EQ(streams_->device_waits, 1u);
  EXPECT_EQ(streams_->host_waits, 0u);
  EXPECT_FALSE(streams_->finished({2, 1})) << "the wait itself is still in stream 2";
  streams_->advance(2, 1);
  EXPECT_FALSE(streams_->finished({2, 1})) << "and holds it until stream 1 is done";
  streams_->advance(1, 1);
  streams_->advance(2, 1);
  EXPECT_TRUE(streams_->finished({2, 1}));
}

TEST_F(AllocatorStreamsTest, memory_never_used_is_not_tied_to_the_first_stream) {
  get(kMiB, a_);
  get(kMiB, b_);
  EXPECT_EQ(streams_->records, 0u);
  EXPECT_EQ(streams_->device_waits, 0u);
}

TEST_F(AllocatorStreamsTest, the_pool_grows_rather_than_make_streams_wait) {
  make({.limit_bytes = 64 * kMiB, .first_region_bytes = 4 * kMiB});
  void* block = get(4 * kMiB, a_);
  use_and_put(block, a_);
  EXPECT_NE(get(4 * kMiB, b_), block);
  EXPECT_EQ(allocator_->stats().pool_bytes, 12 * kMiB);
  EXPECT_EQ(streams_->device_waits + streams_->host_waits, 0u);
}

TEST_F(AllocatorStreamsTest, a_run_of_own_and_idle_chunks_serves_a_larger_request) {
  get(kMiB, b_);
  void* first = get(3 * kMiB, a_);
  use_and_put(first, a_);  // beside 4 MiB that were never used
  EXPECT_EQ(allocator_->stats().free_chunks, 2u) << "kept apart: the rest may serve others";
  EXPECT_EQ(get(7 * kMiB, a_), first);
  EXPECT_EQ(streams_->device_waits + streams_->host_waits, 0u);
}

TEST_F(AllocatorStreamsTest, a_stream_waits_only_for_those_whose_memory_it_takes) {
  get(kMiB, c_);
  void* of_a = get(3 * kMiB, a_);
  void* of_b = get(4 * kMiB, b_);
  use_and_put(of_a, a_);
  use_and_put(of_b, b_);
  EXPECT_EQ(get(3 * kMiB, c_), of_a) << "the smallest run that fits";
  EXPECT_EQ(streams_->device_waits, 1u);
  streams_->advance(1, 1);
  streams_->advance(3, 1);
  EXPECT_TRUE(streams_->finished({3, 1}));
}

TEST_F(AllocatorStreamsTest, what_a_waiting_stream_leaves_is_safe_for_a_third) {
  get(256, c_);
  void* block = get(8 * kMiB - 256, a_);
  use_and_put(block, a_);
  EXPECT_EQ(get(kMiB, b_), block);
  const auto waits = streams_->device_waits;
  void* rest = get(2 * kMiB, c_);
  EXPECT_EQ(rest, static_cast<char*>(block) + kMiB);
  EXPECT_GT(streams_->device_waits, waits) << "stream 2 has not waited for stream 1 yet, so that 3 must";
  streams_->advance(3, 10);
  EXPECT_FALSE(streams_->finished({3, 1}));
}

TEST_F(AllocatorStreamsTest, the_host_is_a_stream_of_its_own) {
  const Stream host = SimulatedStreams::host();
  void* staging = get(5 * kMiB, host);
  use_and_put(staging, a_);  // copied from by stream 1
  EXPECT_NE(get(3 * kMiB, host), staging);
  EXPECT_EQ(streams_->host_waits, 0u);
  EXPECT_EQ(get(5 * kMiB, host), staging) << "nothing else is left: the host waits";
  EXPECT_EQ(streams_->host_waits, 1u);
  EXPECT_TRUE(streams_->finished({1, 1}));
  allocator_->free(staging, host);
  EXPECT_EQ(get(5 * kMiB, a_), staging) << "the host's frees are done at once";
}

TEST_F(AllocatorStreamsTest, giving_up_comes_after_waiting_for_everything) {
  make({.limit_bytes = 8 * kMiB, .first_region_bytes = 4 * kMiB});
  void* of_a = get(4 * kMiB, a_);
  void* of_b = get(4 * kMiB, b_);
  use_and_put(of_a, a_);
  use_and_put(of_b, b_);
  EXPECT_NE(get(7 * kMiB, a_), nullptr) << "two regions of 4 MiB must go for one of 7";
  EXPECT_TRUE(streams_->finished({2, 1})) << "not released to the device while in use";
  EXPECT_THROW(get(2 * kMiB, b_), OutOfMemory);
}

TEST_F(AllocatorStreamsTest, regions_go_back_only_when_their_stream_is_done) {
  make({.limit_bytes = 8 * kMiB, .first_region_bytes = 4 * kMiB});
  void* block = get(4 * kMiB, a_);
  use_and_put(block, a_);
  EXPECT_NE(get(8 * kMiB, a_), nullptr);
  EXPECT_TRUE(streams_->finished({1, 1}));
}

TEST_F(AllocatorStreamsTest, trim_waits_for_deferred_frees) {
  void* of_a = get(3 * kMiB, a_);
  void* of_b = get(3 * kMiB, b_);
  use_and_put(of_a, a_);
  use_and_put(of_b, b_);
  EXPECT_EQ(allocator_->trim(), 8 * kMiB);
  EXPECT_TRUE(streams_->finished({1, 1}));
  EXPECT_TRUE(streams_->finished({2, 1}));
  EXPECT_EQ(streams_->open_marks, 0u);
  const auto records = streams_->records;
  use_and_put(get(kMiB, c_), c_);
  EXPECT_EQ(streams_->records, records) << "after a trim the next stream is the only one again";
  EXPECT_EQ(allocator_->trim(), 8 * kMiB);
  EXPECT_TRUE(streams_->finished({3, 1}));
}

TEST_F(AllocatorStreamsTest, marks_stay_few_when_nobody_asks) {
  get(256, b_);
  for (int i = 0; i < 1000; ++i) {
    void* block = get(4096, a_);
    use_and_put(block, a_);
    ASSERT_LE(streams_->open_marks, 16u);
  }
  void* all = get(8 * kMiB - 256, b_);
  EXPECT_NE(all, nullptr) << "frees without a mark of their own are covered when somebody asks";
  streams_->advance(2, 100);
  EXPECT_FALSE(streams_->finished({2, 1}));
  streams_->advance(1, 1000);
  streams_->advance(2, 100);
  EXPECT_TRUE(streams_->finished({2, 1}));
}

TEST_F(AllocatorStreamsTest, many_short_lived_streams_are_fine) {
  get(256, SimulatedStreams::stream(1));
  for (std::uint32_t id = 2; id < 2000; ++id) {
    const Stream stream = SimulatedStreams::stream(id);
    void* block = get(6 * kMiB, stream);
    ASSERT_NE(block, nullptr);
    use_and_put(block, stream);
    if (id % 3 == 0) streams_->advance(id, 10);
    if (id % 100 == 0) {
      ASSERT_EQ(allocator_->check_invariants(), "") << id;
    }
  }
  EXPECT_LE(streams_->open_marks, 16u * 2000);
}

TEST_F(AllocatorStreamsTest, a_failing_record_changes_nothing) {
  void* block = get(kMiB, a_);
  get(kMiB, b_);
  const auto before = allocator_->stats();
  streams_->fail_record = true;
  EXPECT_THROW(allocator_->free(block, a_), std::runtime_error);
  streams_->fail_record = false;
  EXPECT_EQ(allocator_->stats().in_use_bytes, before.in_use_bytes);
  EXPECT_EQ(allocator_->stats().frees, before.frees);
  EXPECT_EQ(allocator_->check_invariants(), "");
  allocator_->free(block, a_);
}

// States of more than eight streams share what the allocator remembers of them.
TEST_F(AllocatorStreamsTest, an_arena_is_released_in_order_however_many_streams_there_are) {
  for (std::uint32_t last = 10; last < 27; ++last) {
    make({.limit_bytes = 4 * kMiB});
    use_and_put(get(256, a_), a_);
    ASSERT_TRUE(allocator_->reserve_arena(3 * kMiB, b_));
    for (std::uint32_t id = 10; id <= last; ++id) get(256, SimulatedStreams::stream(id));
    const testing::Point work = streams_->submit(b_);  // in the arena
    const Stream asks = SimulatedStreams::stream(last);
    const std::uint64_t waits = streams_->device_waits + streams_->host_waits;
    get(2 * kMiB, asks);
    EXPECT_GT(streams_->device_waits + streams_->host_waits, waits) << last - 7 << " streams";
    streams_->submit(asks, {work});
    streams_->run_all();
  }
}

}  // namespace
}  // namespace bantam::allocator_streams_test
