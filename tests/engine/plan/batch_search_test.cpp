// The largest batch of made-up memories: smooth, full of holes, and with bounds.
#include "bantam/engine/plan/batch_search.h"

#include <gtest/gtest.h>

#include "bantam/base/error.h"

namespace bantam::batch_search_test {
namespace {

/// A memory that holds batches of up to `most`, but for those that `hole` names.
struct Memory {
  std::int64_t most;
  std::function<bool(std::int64_t)> hole = [](std::int64_t) { return false; };
  std::int64_t asked = 0;

  std::int64_t solve(BatchRange range) {
    return largest_batch(range, {.fits = [&](std::int64_t n) { return ++asked, n <= most && !hole(n); },
                                 .could_fit = [&](std::int64_t n) { return ++asked, n <= most; }});
  }
};

TEST(BatchSearch, FindsTheLargest) {
  for (const std::int64_t most : {1, 2, 3, 7, 64, 97, 100, 255, 256}) {
    Memory memory{most};
    EXPECT_EQ(memory.solve({.max = 100'000}), most);
    EXPECT_LT(memory.asked, 60);
  }
  EXPECT_EQ(Memory{1023}.solve({.max = 100'000}), 1020) << "of 512 to 1,024 every fourth is asked about";
  EXPECT_EQ(Memory{70'000}.solve({.max = 100'000}), 69'632);
  EXPECT_EQ(Memory{70'001}.solve({.max = 70'001}), 70'001) << "the end of the range is";
}

TEST(BatchSearch, MoreMemoryNeverHasASmallerBatch) {
  // Fragmentation: what a batch needs above its peak jumps from size to size.
  const auto needs = [](std::int64_t n) { return 1000 * n + (n * 7919) % 37'000; };
  for (const std::int64_t unit : {1, 8}) {
    std::int64_t before = 0;
    for (std::int64_t bytes = 0; bytes < 2'000'000; bytes += 997) {
      const std::int64_t found = largest_batch({.max = 3000, .multiple_of = unit},
                                               {.fits = [&](std::int64_t n) { return needs(n) <= bytes; },
                                                .could_fit = [&](std::int64_t n) { return 1000 * n <= bytes; }});
      EXPECT_GE(found, before) << "with " << bytes;
      before = std::max(before, found);
    }
    EXPECT_GT(before, 1800);
  }
}

TEST(BatchSearch, BoundsHold) {
  EXPECT_EQ(Memory{1000}.solve({.max = 300}), 300);
  EXPECT_EQ(Memory{1000}.solve({.max = 301, .multiple_of = 8}), 296);
  EXPECT_EQ(Memory{100}.solve({.max = 1 << 20, .multiple_of = 16}), 96);
  EXPECT_EQ(Memory{0}.solve({.max = 10}), 0);
  EXPECT_EQ(Memory{7}.solve({.max = 100, .multiple_of = 8}), 0) << "not even one multiple";
  EXPECT_THROW((void)Memory{7}.solve({.max = 100, .multiple_of = 0}), ConfigError);
}

TEST(BatchSearch, SeesBeyondHoles) {
  // Fragmentation: above 50 only multiples of 7 fit, and bisection alone would stop near 50.
  Memory memory{120, [](std::int64_t n) { return n > 50 && n % 7 != 0; }};
  EXPECT_EQ(memory.solve({.max = 1000}), 119);
  Memory island{150, [](std::int64_t n) { return n > 60 && n != 140; }};
  EXPECT_EQ(island.solve({.max = 1000}), 140);
}

TEST(BatchSearch, IsWithinAPerCentWhereThereIsMuchToLookAt) {
  Memory memory{100'000, [](std::int64_t n) { return n > 71'234; }};
  const std::int64_t found = memory.solve({.max = 1 << 20});
  EXPECT_LE(found, 71'234);
  EXPECT_GE(found, 71'234 - 500);
  EXPECT_LT(memory.asked, 200);
}

}  // namespace
}  // namespace bantam::batch_search_test
