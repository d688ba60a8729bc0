// Random work on several simulated streams: no memory is used while another stream's earlier use of it is unfinished.
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/memory/allocator.h"
#include "tests/memory/simulated_streams.h"
#include "tests/memory/test_source.h"

namespace bantam {
namespace {

using testing::Point;
using testing::SimulatedOracle;
using testing::SimulatedStreams;
using testing::SourceLog;
using testing::TestSource;

struct Settings {
  unsigned seed = 1;
  int steps = 1000;
  int check_every = 1;
  std::uint32_t streams = 3;
  bool host = true;
  std::uint64_t limit = 4 << 20;
  bool growth = true;
  unsigned fail_percent = 0;
  unsigned eager = 30;  ///< how much of the time goes to finishing work, in percent
};

class StreamsFuzz {
 public:
  explicit StreamsFuzz(const Settings& settings)
      : settings_(settings),
        random_(settings.seed),
        streams_(std::make_shared<SimulatedStreams>(settings.streams)),
        allocator_(std::make_unique<TestSource>(log_, 0), Device::cuda(0),
                   {.limit_bytes = settings.limit, .growth = settings.growth, .first_region_bytes = 128 << 10},
                   std::make_unique<SimulatedOracle>(streams_)),
        last_use_(kGranules) {
    log_->fails = [this](std::uint64_t, std::size_t) { return random_() % 100 < settings_.fail_percent; };
  }

  void run() {
    for (int step = 0; step < settings_.steps && !::testing::Test::HasFailure(); ++step) {
      const unsigned kind = random_() % 1000;
      if (kind < 2)
        trim();
      else if (random_() % 100 < settings_.eager)
        streams_->advance(1 + random_() % settings_.streams, 1 + random_() % 4);
      else if (random_() % 100 < (live_.size() < 60 ? 58u : 40u))
        allocate();
      else
        free_one();
      EXPECT_LE(allocator_.stats().pool_bytes, settings_.limit);
      if (step % settings_.check_every != 0) continue;
      ASSERT_EQ(allocator_.check_invariants(), "") << "step " << step << ", seed " << settings_.seed;
    }
    while (!live_.empty()) free_one();
    allocator_.trim();
    EXPECT_EQ(log_->held, 0u) << "all is free, so that all can be given back";
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
  static constexpr std::uintptr_t kBase = std::uintptr_t{1} << 44;
  static constexpr std::size_t kGranules = (64u << 20) / 256;

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
      if (settings_.fail_percent == 0) expect_truly_out((bytes + 255) / 256 * 256);
      return;
    }
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    const std::size_t size = (bytes + 255) / 256 * 256;
    expect_disjoint(address, size);
    const std::size_t from = (address - kBase) / 256, to = from + size / 256;
    ASSERT_LE(to, kGranules);
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
  // Out of memory is only right where even waiting for all work and giving all free regions back would not help.
  void expect_truly_out(std::size_t size) {
    allocator_.trim();
    const MemoryStats stats = allocator_.stats();
    EXPECT_LT(stats.largest_free_bytes, size);
    EXPECT_GT(size, stats.limit_bytes - stats.pool_bytes);
  }
  void free_one() {
    if (live_.empty()) return;
    auto block = live_.lower_bound(kBase + random_() % (settings_.limit));
    if (block == live_.end()) block = live_.begin();
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

  Settings settings_;
  std::mt19937_64 random_;
  std::shared_ptr<SimulatedStreams> streams_;
  std::shared_ptr<SourceLog> log_ = std::make_shared<SourceLog>();
  BfcAllocator allocator_;
  std::vector<Point> last_use_;  // by granule
  std::map<std::uintptr_t, Block> live_;
  std::uint64_t refused_ = 0;
};

TEST(AllocatorStreamsFuzz, short_runs_checked_after_every_operation) {
  std::uint64_t checked = 0, waits = 0, refused = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    StreamsFuzz fuzz({.seed = seed,
                      .steps = 800,
                      .streams = seed % 5 + 1,
                      .host = seed % 3 == 0,
                      .limit = (seed % 4 + 1) << 20,
                      .growth = seed % 2 == 0,
                      .eager = seed % 7 * 10});
    fuzz.run();
    checked += fuzz.checked();
    waits += fuzz.device_waits();
    refused += fuzz.refused();
  }
  EXPECT_GT(checked, 1000u) << "the fuzzer must meet memory that goes from stream to stream";
  EXPECT_GT(waits, 100u);
  EXPECT_GT(refused, 100u);
}

TEST(AllocatorStreamsFuzz, with_a_failing_source) {
  for (unsigned seed = 1; seed <= 20; ++seed)
    StreamsFuzz({.seed = seed, .steps = 1000, .streams = 2, .host = seed % 2 == 0, .fail_percent = 5 * seed}).run();
}

TEST(AllocatorStreamsFuzz, long_runs) {
  StreamsFuzz({.seed = 71, .steps = 150000, .check_every = 64, .streams = 2, .limit = 16 << 20}).run();
  StreamsFuzz({.seed = 72, .steps = 150000, .check_every = 64, .streams = 4, .host = false, .limit = 4 << 20}).run();
  StreamsFuzz({.seed = 73, .steps = 100000, .check_every = 64, .streams = 12, .limit = 8 << 20, .growth = false}).run();
}

}  // namespace
}  // namespace bantam
