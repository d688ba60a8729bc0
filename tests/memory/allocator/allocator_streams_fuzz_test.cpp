// Random work on several simulated streams, by regions and by pages: no memory is used, and no page unmapped, while
// another stream's earlier use of it is unfinished.
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/memory/allocator/allocator.h"
#include "bantam/memory/device/fake_addresses.h"
#include "tests/memory/fuzz_length.h"
#include "tests/memory/model_pages.h"
#include "tests/memory/simulated_streams.h"
#include "tests/memory/test_pages.h"
#include "tests/memory/test_source.h"

namespace bantam::allocator_streams_fuzz_test {
namespace {

using testing::fuzz_steps;
using testing::PageLog;
using testing::Point;
using testing::SimulatedOracle;
using testing::SimulatedStreams;
using testing::SourceLog;
using testing::TestPages;
using testing::TestSource;
using testing::Use;

struct Settings {
  unsigned seed = 1;
  std::uint64_t steps = 1000;
  std::uint64_t check_every = 1;
  std::uint32_t streams = 3;
  bool host = true;
  std::uint64_t limit = 4 << 20;
  bool growth = true;
  unsigned fail_percent = 0;
  unsigned eager = 30;   ///< how much of the time goes to finishing work, in percent
  std::size_t page = 0;  ///< 0: by regions
};

class StreamsFuzz {
 public:
  explicit StreamsFuzz(const Settings& settings)
      : settings_(settings),
        random_(settings.seed),
        streams_(std::make_shared<SimulatedStreams>(settings.streams)),
        allocator_(source(), Device::cuda(0),
                   {.limit_bytes = settings.limit, .growth = settings.growth, .first_region_bytes = 128 << 10},
                   std::make_unique<SimulatedOracle>(streams_)),
        last_use_(kAllocationUnits) {
    log_->fails = [this](std::uint64_t, std::size_t) { return random_() % 100 < settings_.fail_percent; };
    page_log_->fails = log_->fails;
    page_log_->on_unmap = [this](AddressRange pages) { expect_finished(pages); };
  }

  void run() {
    for (std::uint64_t step = 0; step < settings_.steps && !::testing::Test::HasFailure(); ++step) {
      const unsigned kind = random_() % 1000;
      if (kind < 2)
        trim();
      else if (kind < 4)
        change_limit();
      else if (random_() % 100 < settings_.eager)
        streams_->advance(1 + random_() % settings_.streams, 1 + random_() % 4);
      else if (random_() % 100 < (live_.size() < 60 ? 58u : 40u))
        allocate();
      else
        free_one();
      EXPECT_LE(allocator_.stats().pool_bytes, allocator_.stats().limit_bytes);
      if (step % settings_.check_every != 0) continue;
      ASSERT_EQ(allocator_.check_invariants(), "") << "step " << step << ", seed " << settings_.seed;
    }
    while (!live_.empty()) free_one();
    allocator_.trim();
    EXPECT_EQ(log_->reserved + page_log_->reserved, 0u) << "all is free, so that all can be released";
    EXPECT_EQ(streams_->open_marks, 0u);
    streams_->run_all();
  }
  std::uint64_t checked() const { return streams_->checked; }
  std::uint64_t device_waits() const { return streams_->device_waits; }
  std::uint64_t refused() const { return refused_; }

 private:
  struct Block {
    std::size_t size;
    Stream stream;
    Point use;
  };
  static constexpr std::uintptr_t kBase = kFakeAddresses;
  static constexpr std::size_t kAllocationUnits = (64u << 20) / 256;

  std::unique_ptr<MemorySource> source() {
    if (settings_.page == 0) return std::make_unique<TestSource>(log_, 0);
    return std::make_unique<TestPages>(
        page_log_, FakePages{.page_bytes = settings_.page, .address_bytes = kAllocationUnits * 256});
  }
  Stream random_stream() {
    if (settings_.host && random_() % 6 == 0) return SimulatedStreams::host();
    return SimulatedStreams::stream(1 + static_cast<std::uint32_t>(random_() % settings_.streams));
  }
  void allocate() {
    const std::size_t bytes = 1 + random_() % (std::size_t{512} << random_() % 12);
    const Stream stream = random_stream();
    const MemoryStats before = allocator_.stats();
    void* memory = nullptr;
    try {
      memory = allocator_.allocate(bytes, stream, {Category::activation, "fuzz"});
    } catch (const OutOfMemory&) {
      ++refused_;
      EXPECT_EQ(allocator_.stats().in_use_bytes, before.in_use_bytes);
      if (settings_.fail_percent == 0 && refused_ % 4 == 0) expect_truly_out((bytes + 255) / 256 * 256);
      return;
    }
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    const std::size_t size = (bytes + 255) / 256 * 256;
    expect_disjoint(address, size);
    const std::size_t from = (address - kBase) / 256, to = from + size / 256;
    ASSERT_LE(to, kAllocationUnits);
    std::vector<Point> earlier;
    for (std::size_t i = from; i < to; ++i) {
      const Point use = last_use_[i];
      const bool ordered = use.position == 0 || (!SimulatedStreams::is_host(stream) && use.stream == stream.id);
      if (!ordered &&
          (earlier.empty() || earlier.back().stream != use.stream || earlier.back().position != use.position))
        earlier.push_back(use);
    }
    live_[address] = {size, stream, streams_->submit(stream, std::move(earlier))};
  }
  void expect_disjoint(std::uintptr_t address, std::size_t size) {
    EXPECT_EQ(address % 256, 0u);
    const auto after = live_.upper_bound(address);
    EXPECT_TRUE(after == live_.end() || after->first >= address + size);
    EXPECT_TRUE(after == live_.begin() || std::prev(after)->first + std::prev(after)->second.size <= address);
  }
  // Out of memory is only right where even waiting for all work and giving all free memory back would not help.
  void expect_truly_out(std::size_t size) {
    allocator_.trim();
    const MemoryStats stats = allocator_.stats();
    EXPECT_LT(stats.largest_free_bytes, size);
    if (settings_.page == 0) {
      EXPECT_GT(size, stats.limit_bytes - stats.pool_bytes);
      return;
    }
    std::vector<Use> uses(kAllocationUnits);
    for (const auto& [address, block] : live_)
      std::fill_n(uses.begin() + static_cast<std::ptrdiff_t>((address - kBase) / 256), block.size / 256, Use::live);
    std::vector<bool> unmapped = page_log_->mapped;
    unmapped.flip();
    const testing::Place place = testing::cheapest_place(uses, unmapped, size / 256);
    EXPECT_TRUE(!place.found() || place.cost * settings_.page > stats.limit_bytes - stats.pool_bytes)
        << place.cost << " pages would have been enough for " << size << " bytes";
  }
  void expect_finished(AddressRange pages) {
    for (std::size_t i = 0; i < pages.bytes / 256; ++i)
      ASSERT_TRUE(streams_->finished(last_use_[(pages.begin - kBase) / 256 + i])) << "a page in use was unmapped";
    const auto after = live_.lower_bound(pages.begin);
    EXPECT_TRUE(after == live_.end() || after->first >= pages.end()) << "a page with live memory was unmapped";
    EXPECT_TRUE(after == live_.begin() || std::prev(after)->first + std::prev(after)->second.size <= pages.begin)
        << "a page with live memory was unmapped";
  }
  void free_one() {
    if (live_.empty()) return;
    auto block = live_.lower_bound(kBase + random_() % (settings_.limit));
    if (block == live_.end()) block = live_.begin();  // addresses above the limit are rare
    // Its last use is on some stream, which the program has made wait for the first use.
    const Stream stream = random_() % 4 == 0 ? random_stream() : block->second.stream;
    const Point first_use = block->second.use;
    if (SimulatedStreams::is_host(stream))
      streams_->run_until(first_use);
    else if (first_use.position > 0 && first_use.stream != stream.id)
      streams_->wait(stream, first_use);
    const Point use = streams_->submit(stream, {first_use});
    for (std::size_t i = 0; i < block->second.size / 256; ++i) last_use_[(block->first - kBase) / 256 + i] = use;
    allocator_.free(reinterpret_cast<void*>(block->first), stream);
    live_.erase(block);
  }
  void trim() {
    allocator_.trim();
    EXPECT_EQ(streams_->open_marks, 0u);
  }

  // Lowering waits for all work before it unmaps; it is refused where live memory does not allow it.
  void change_limit() {
    const std::uint64_t in_use = allocator_.stats().in_use_bytes, limit = allocator_.stats().limit_bytes;
    const std::uint64_t wanted = settings_.limit / 2 + random_() % (settings_.limit / 2);
    try {
      allocator_.set_limit(wanted);
    } catch (const OutOfMemory&) {
      EXPECT_EQ(allocator_.stats().limit_bytes, limit);
    }
    EXPECT_EQ(allocator_.stats().in_use_bytes, in_use);
  }

  Settings settings_;
  std::mt19937_64 random_;
  std::shared_ptr<SimulatedStreams> streams_;
  std::shared_ptr<SourceLog> log_ = std::make_shared<SourceLog>();
  std::shared_ptr<PageLog> page_log_ = std::make_shared<PageLog>();
  BfcAllocator allocator_;
  std::vector<Point> last_use_;  // by allocation unit
  std::map<std::uintptr_t, Block> live_;
  std::uint64_t refused_ = 0;
};

constexpr std::size_t kKiB = 1024;

TEST(AllocatorStreamsFuzz, short_runs_checked_after_every_operation) {
  for (const std::size_t page : {std::size_t{0}, 2 * kKiB, 64 * kKiB}) {
    std::uint64_t checked = 0, waits = 0, refused = 0;
    for (unsigned seed = 1; seed <= 60; ++seed) {
      StreamsFuzz fuzz({.seed = seed,
                        .steps = 800,
                        .streams = seed % 5 + 1,
                        .host = seed % 3 == 0,
                        .limit = (seed % 4 + 1) << 20,
                        .growth = seed % 2 == 0,
                        .eager = seed % 7 * 10,
                        .page = page});
      fuzz.run();
      checked += fuzz.checked();
      waits += fuzz.device_waits();
      refused += fuzz.refused();
    }
    EXPECT_GT(checked, 1000u) << "the fuzzer must meet memory that goes from stream to stream";
    EXPECT_GT(waits, 100u);
    EXPECT_GT(refused, 100u);
  }
}

TEST(AllocatorStreamsFuzz, with_a_failing_source) {
  for (unsigned seed = 1; seed <= 20; ++seed)
    for (const std::size_t page : {std::size_t{0}, 8 * kKiB})
      StreamsFuzz({.seed = seed, .streams = 2, .host = seed % 2 == 0, .fail_percent = 5 * seed, .page = page}).run();
}

TEST(AllocatorStreamsFuzz, long_runs) {
  const std::uint64_t steps = fuzz_steps(0.05);
  const Settings many{.seed = 71, .steps = steps, .check_every = 64, .streams = 2, .limit = 16 << 20};
  const Settings tight{.seed = 72, .steps = steps, .check_every = 64, .streams = 4, .host = false};
  for (Settings settings : {many, tight}) {
    StreamsFuzz(settings).run();
    settings.page = 16 * kKiB;
    StreamsFuzz(settings).run();
  }
  StreamsFuzz({.seed = 73, .steps = steps, .check_every = 64, .streams = 12, .limit = 8 << 20, .growth = false}).run();
}

}  // namespace
}  // namespace bantam::allocator_streams_fuzz_test
