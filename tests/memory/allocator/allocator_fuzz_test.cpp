// Random work on one stream, by regions and by pages, against brute-force models: every address, every call to the
// source and every sum must agree.
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/memory/allocator/allocator.h"
#include "tests/memory/fuzz_length.h"
#include "tests/memory/model_allocator.h"
#include "tests/memory/model_pages.h"
#include "tests/memory/test_pages.h"
#include "tests/memory/test_source.h"

namespace bantam::allocator_fuzz_test {
namespace {

using testing::fuzz_steps;
using testing::ModelAllocator;
using testing::ModelPages;
using testing::PageLog;
using testing::SourceLog;
using testing::TestPages;
using testing::TestSource;

struct Settings {
  unsigned seed = 1;
  std::uint64_t steps = 1000;
  std::uint64_t check_every = 1;
  std::uint64_t limit = 0;
  bool growth = true;
  std::size_t first = 64u << 10;
  std::size_t capacity = 0;
  std::uint64_t fail_from = ~std::uint64_t{0}, fail_count = 0;  ///< source calls that fail
  unsigned fail_percent = 0;
  std::size_t most_live = 200;
  std::size_t largest = 4000000;
  FakePages pages;       ///< by pages only
  unsigned changes = 2;  ///< of 1000 steps: trims, and as many changes of the limit
};

struct Regions {
  using Log = SourceLog;
  using Model = ModelAllocator;
  static Model model(const Settings& s) { return {s.limit, s.growth, s.first}; }
  static std::unique_ptr<MemorySource> source(const std::shared_ptr<Log>& log, const Settings& s) {
    return std::make_unique<TestSource>(log, s.capacity);
  }
  static std::uint64_t source_calls(const Log& log) { return log.acquires; }
};

struct Pages {
  using Log = PageLog;
  using Model = ModelPages;
  static Model model(const Settings& s) { return {s.limit, s.growth, s.pages}; }
  static std::unique_ptr<MemorySource> source(const std::shared_ptr<Log>& log, const Settings& s) {
    return std::make_unique<TestPages>(log, s.pages);
  }
  static std::uint64_t source_calls(const Log& log) { return log.maps.size(); }
};

template <typename Memory>
class Fuzz {
 public:
  explicit Fuzz(const Settings& settings)
      : settings_(settings),
        random_(settings.seed),
        model_(Memory::model(settings)),
        allocator_(Memory::source(log_, settings), Device::cpu(),
                   {.limit_bytes = settings.limit, .growth = settings.growth, .first_region_bytes = settings.first}) {
    log_->fails = [this](std::uint64_t call, std::size_t) {
      return (call >= settings_.fail_from && call < settings_.fail_from + settings_.fail_count) ||
             failures_() % 100 < settings_.fail_percent;
    };
  }

  /// Runs all steps; a digest of all addresses in their order.
  std::uint64_t run() {
    for (std::uint64_t step = 0; step < settings_.steps && !::testing::Test::HasFailure(); ++step) {
      const auto kind = random_() % 1000;
      if (kind < settings_.changes)
        trim();
      else if (kind < 2 * settings_.changes)
        change_limit();
      else if (kind < 2 * settings_.changes + 2)
        reset_peak();
      else if (kind < (live_.size() < settings_.most_live ? 570u : 330u))
        allocate();
      else
        free_one();
      check_sums();
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
        return std::min((std::size_t{1} << (8 + random_() % 10)) + random_() % 3 - 1, settings_.largest);
      case 2:
        return random_() % 50 == 0 ? std::numeric_limits<std::size_t>::max() - random_() % 1000
                                   : 1 + random_() % settings_.largest;
      case 3:
        return 4096;
      default:
        return 1 + random_() % std::min(std::size_t{256} << random_() % 10, settings_.largest);
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
  // At every step: the sums.
  void check_sums() {
    const MemoryStats stats = allocator_.stats();
    EXPECT_EQ(stats.pool_bytes, log_->reserved) << "the source's own books";
    EXPECT_EQ(stats.in_use_bytes, model_.in_use());
    EXPECT_LE(stats.in_use_bytes, stats.pool_bytes);
    EXPECT_TRUE(stats.limit_bytes == 0 || stats.pool_bytes <= stats.limit_bytes);
  }
  // At every so many steps: everything.
  void check(std::uint64_t step) {
    ASSERT_EQ(allocator_.check_invariants(), "") << "step " << step << ", seed " << settings_.seed;
    const MemoryStats stats = allocator_.stats();
    EXPECT_EQ(stats.pool_bytes, model_.pool());
    EXPECT_EQ(stats.pool_bytes, log_->reserved) << "the source's own books";
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
  std::shared_ptr<typename Memory::Log> log_ = std::make_shared<typename Memory::Log>();
  typename Memory::Model model_;
  BfcAllocator allocator_;
  std::vector<std::uintptr_t> live_;
  std::vector<std::size_t> sizes_;
  std::uint64_t requested_ = 0, peak_ = 0, digest_ = 0, refused_ = 0;
};

constexpr std::size_t kKiB = 1024;

/// Small pages, so that the brute-force search over all addresses stays quick.
Settings with_pages(Settings settings, std::size_t page, std::size_t growth = 0, std::size_t capacity = 0) {
  settings.pages = {.page_bytes = page, .growth_bytes = growth, .capacity = capacity, .address_bytes = 1024 * kKiB};
  settings.largest = 100 * kKiB;
  settings.changes = 8;
  return settings;
}

TEST(AllocatorFuzz, short_runs_checked_after_every_operation) {
  std::uint64_t refused = 0;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    Fuzz<Regions> fuzz(
        {.seed = seed, .limit = seed % 4 == 0 ? 0 : (seed % 7 + 1) << 20, .growth = seed % 4 == 0 || seed % 3 != 0});
    fuzz.run();
    refused += fuzz.refused();
  }
  EXPECT_GT(refused, 100u) << "limits were never met: the fuzzer misses its point";
}

TEST(AllocatorFuzz, short_runs_by_pages_checked_after_every_operation) {
  std::uint64_t refused = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    const std::size_t page = std::size_t{256} << seed % 6;
    Fuzz<Pages> fuzz(with_pages({.seed = seed,
                                 .limit = seed % 4 == 0 ? 0 : (seed % 7 + 1) * 40 * kKiB + 300,
                                 .growth = seed % 4 == 0 || seed % 3 != 0},
                                page, seed % 5 == 0 ? 4 * page : 0));
    fuzz.run();
    refused += fuzz.refused();
  }
  EXPECT_GT(refused, 100u) << "limits were never met: the fuzzer misses its point";
}

TEST(AllocatorFuzz, the_source_failing_at_every_call) {
  for (unsigned k = 0; k < 60; ++k) {
    const Settings settings{.seed = 100 + k, .steps = 400, .limit = 6 << 20, .fail_from = k, .fail_count = 1 + k % 40};
    Fuzz<Regions>(settings).run();
    Settings small = settings;
    small.limit = 200 * kKiB;
    Fuzz<Pages>(with_pages(small, 2 * kKiB, k % 2 == 0 ? 8 * kKiB : 0)).run();
  }
  for (unsigned percent = 10; percent <= 100; percent += 10) {
    Fuzz<Regions>({.seed = 200 + percent, .limit = 6 << 20, .fail_percent = percent}).run();
    Fuzz<Pages>(with_pages({.seed = 300 + percent, .limit = 150 * kKiB, .fail_percent = percent}, 1 * kKiB)).run();
  }
}

TEST(AllocatorFuzz, long_runs) {
  const std::uint64_t steps = fuzz_steps(0.15);
  Fuzz<Regions>({.seed = 1001, .steps = steps, .check_every = 64, .limit = 12 << 20, .most_live = 60}).run();
  Fuzz<Regions>({.seed = 1002, .steps = steps, .check_every = 64, .limit = 40 << 20, .growth = false}).run();
  Fuzz<Regions>({.seed = 1003, .steps = steps, .check_every = 64, .capacity = 16 << 20, .fail_percent = 5}).run();
}

TEST(AllocatorFuzz, long_runs_by_pages) {
  const Settings settings{.steps = fuzz_steps(0.1), .check_every = 64, .limit = 300 * kKiB, .most_live = 60};
  Settings failing = settings, unlimited = settings;
  failing.fail_percent = 5;
  unlimited.limit = 0;
  Fuzz<Pages>(with_pages(settings, 4 * kKiB)).run();
  Fuzz<Pages>(with_pages(failing, 1 * kKiB, 8 * kKiB)).run();
  Fuzz<Pages>(with_pages(unlimited, 2 * kKiB, 0, 250 * kKiB)).run();
}

TEST(AllocatorFuzz, the_same_requests_give_the_same_addresses) {
  const Settings settings{.seed = 5, .steps = 5000, .check_every = 1000, .limit = 8 << 20};
  Settings other = settings;
  other.seed = 6;
  const std::uint64_t first = Fuzz<Regions>(settings).run();
  EXPECT_EQ(Fuzz<Regions>(settings).run(), first);
  EXPECT_NE(Fuzz<Regions>(other).run(), first);
  const std::uint64_t by_pages = Fuzz<Pages>(with_pages(settings, 1 * kKiB)).run();
  EXPECT_EQ(Fuzz<Pages>(with_pages(settings, 1 * kKiB)).run(), by_pages);
}

}  // namespace
}  // namespace bantam::allocator_fuzz_test
