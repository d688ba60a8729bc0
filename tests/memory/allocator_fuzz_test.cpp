// Random work on one stream, against a brute-force model: every address, every call to the source and every sum must
// agree.
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/memory/allocator.h"
#include "tests/memory/model_allocator.h"
#include "tests/memory/test_source.h"

namespace bantam {
namespace {

using testing::ModelAllocator;
using testing::SourceLog;
using testing::TestSource;

struct Settings {
  unsigned seed = 1;
  int steps = 1000;
  int check_every = 1;
  std::uint64_t limit = 0;
  bool growth = true;
  std::size_t first = 64u << 10;
  std::size_t capacity = 0;
  std::uint64_t fail_from = ~std::uint64_t{0}, fail_count = 0;  ///< source calls that fail
  unsigned fail_percent = 0;
  std::size_t most_live = 200;
};

class Fuzz {
 public:
  explicit Fuzz(const Settings& settings)
      : settings_(settings),
        random_(settings.seed),
        model_(settings.limit, settings.growth, settings.first),
        allocator_(std::make_unique<TestSource>(log_, settings.capacity), Device::cpu(),
                   {.limit_bytes = settings.limit, .growth = settings.growth, .first_region_bytes = settings.first}) {
    log_->fails = [this](std::uint64_t call, std::size_t) {
      return (call >= settings_.fail_from && call < settings_.fail_from + settings_.fail_count) ||
             failures_() % 100 < settings_.fail_percent;
    };
  }

  /// Runs all steps; a digest of all addresses in their order.
  std::uint64_t run() {
    for (int step = 0; step < settings_.steps && !::testing::Test::HasFailure(); ++step) {
      const auto kind = random_() % 1000;
      if (kind < 2)
        trim();
      else if (kind < 4)
        change_limit();
      else if (kind < 6)
        reset_peak();
      else if (kind < (live_.size() < settings_.most_live ? 570u : 330u))
        allocate();
      else
        free_one();
      if (step % settings_.check_every == 0) check(step);
    }
    while (!live_.empty()) free_one();
    check(settings_.steps);
    EXPECT_EQ(allocator_.stats().free_chunks, allocator_.stats().regions) << "all is free: one chunk a region";
    return digest_;
  }
  std::uint64_t refused() const { return refused_; }

 private:
  std::size_t random_size() {
    switch (random_() % 16) {
      case 0:
        return random_() % 3 == 0 ? 0 : 1 + random_() % 600;
      case 1:
        return (std::size_t{1} << (8 + random_() % 10)) + random_() % 3 - 1;
      case 2:
        return random_() % 50 == 0 ? std::numeric_limits<std::size_t>::max() - random_() % 1000
                                   : 1 + random_() % 4000000;
      case 3:
        return 4096;
      default:
        return 1 + random_() % (std::size_t{256} << random_() % 10);
    }
  }
  void allocate() {
    const std::size_t bytes = random_size();
    const auto category = static_cast<Category>(random_() % kCategories);
    std::uintptr_t address = 0;
    try {
      address = reinterpret_cast<std::uintptr_t>(allocator_.allocate(bytes, {}, {category, "fuzz"}));
    } catch (const OutOfMemory&) {
      ++refused_;
    }
    if (bytes == 0) {
      EXPECT_EQ(address, 0u);
      return;
    }
    EXPECT_EQ(address, model_.allocate(bytes, *log_)) << "for " << bytes << " bytes";
    if (address == 0) return;
    live_.push_back(address);
    requested_ += bytes;
    sizes_.push_back(bytes);
    digest_ = (digest_ ^ address) * 0x100000001b3ULL;
    peak_ = std::max(peak_, model_.in_use());
  }
  void free_one() {
    if (live_.empty()) return;
    const std::size_t i = random_() % live_.size();
    if (random_() % 64 == 0) {
      EXPECT_THROW(allocator_.free(reinterpret_cast<void*>(live_[i] + 128), {}), Error);
    }
    allocator_.free(reinterpret_cast<void*>(live_[i]), {});
    model_.free(live_[i]);
    requested_ -= sizes_[i];
    live_[i] = live_.back();
    sizes_[i] = sizes_.back();
    live_.pop_back();
    sizes_.pop_back();
  }
  void trim() {
    const std::uint64_t released = allocator_.trim();
    EXPECT_EQ(released, model_.trim(*log_));
  }
  void change_limit() {
    if (settings_.limit == 0) return;
    const std::uint64_t limit = settings_.limit / 2 + random_() % settings_.limit;
    bool accepted = true;
    try {
      allocator_.set_limit(limit);
    } catch (const OutOfMemory&) {
      accepted = false;
    }
    EXPECT_EQ(accepted, model_.set_limit(limit, *log_));
  }
  void reset_peak() {
    allocator_.reset_peak();
    peak_ = model_.in_use();
  }
  void check(int step) {
    ASSERT_EQ(allocator_.check_invariants(), "") << "step " << step << ", seed " << settings_.seed;
    const MemoryStats stats = allocator_.stats();
    EXPECT_EQ(stats.pool_bytes, model_.pool());
    EXPECT_EQ(stats.pool_bytes, log_->held) << "the source's own books";
    EXPECT_EQ(stats.in_use_bytes, model_.in_use());
    EXPECT_EQ(stats.requested_bytes, requested_);
    EXPECT_EQ(stats.largest_free_bytes, model_.largest_free());
    EXPECT_EQ(stats.live_allocations, live_.size());
    EXPECT_EQ(stats.peak_bytes, peak_);
    model_.expect_all_calls_seen(*log_);
  }

  Settings settings_;
  std::mt19937_64 random_;
  std::mt19937 failures_{99};
  std::shared_ptr<SourceLog> log_ = std::make_shared<SourceLog>();
  ModelAllocator model_;
  BfcAllocator allocator_;
  std::vector<std::uintptr_t> live_;
  std::vector<std::size_t> sizes_;
  std::uint64_t requested_ = 0, peak_ = 0, digest_ = 0, refused_ = 0;
};

TEST(AllocatorFuzz, short_runs_checked_after_every_operation) {
  std::uint64_t refused = 0;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    Fuzz fuzz({.seed = seed,
               .steps = 1000,
               .limit = seed % 4 == 0 ? 0 : (seed % 7 + 1) << 20,
               .growth = seed % 4 == 0 || seed % 3 != 0});
    fuzz.run();
    refused += fuzz.refused();
  }
  EXPECT_GT(refused, 100u) << "limits were never met: the fuzzer misses its point";
}

TEST(AllocatorFuzz, the_source_failing_at_every_call) {
  for (unsigned k = 0; k < 60; ++k)
    Fuzz({.seed = 100 + k, .steps = 400, .limit = 6 << 20, .fail_from = k, .fail_count = 1 + k % 40}).run();
  for (unsigned percent = 10; percent <= 100; percent += 10)
    Fuzz({.seed = 200 + percent, .steps = 1000, .limit = 6 << 20, .fail_percent = percent}).run();
}

TEST(AllocatorFuzz, long_runs) {
  Fuzz({.seed = 1001, .steps = 200000, .check_every = 64, .limit = 12 << 20, .most_live = 60}).run();
  Fuzz({.seed = 1002, .steps = 200000, .check_every = 64, .limit = 40 << 20, .growth = false}).run();
  Fuzz({.seed = 1003, .steps = 150000, .check_every = 64, .capacity = 16 << 20, .fail_percent = 5}).run();
}

TEST(AllocatorFuzz, the_same_requests_give_the_same_addresses) {
  const Settings settings{.seed = 5, .steps = 5000, .check_every = 1000, .limit = 8 << 20};
  const std::uint64_t first = Fuzz(settings).run();
  EXPECT_EQ(Fuzz(settings).run(), first);
  EXPECT_NE(Fuzz({.seed = 6, .steps = 5000, .check_every = 1000, .limit = 8 << 20}).run(), first);
}

}  // namespace
}  // namespace bantam
