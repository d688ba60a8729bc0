// The largest batch of made-up memories: smooth, full of holes, and with bounds.
#include "bantam/engine/plan/batch_search.h"

#include <gtest/gtest.h>

#include "bantam/base/error.h"

namespace bantam {
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

TEST(BatchSearch, FindsTheLargestExactly) {
  for (const std::int64_t most : {1, 2, 3, 7, 64, 97, 100, 1023, 70'000}) {
    Memory memory{most};
    EXPECT_EQ(memory.solve({.max = 100'000}), most);
    EXPECT_LT(memory.asked, 60);
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

TEST(BatchSearch, IsWithinHalfAPercentWhereThereIsMuchToLookAt) {
  Memory memory{100'000, [](std::int64_t n) { return n > 71'234; }};
  const std::int64_t found = memory.solve({.max = 1 << 20});
  EXPECT_LE(found, 71'234);
  EXPECT_GE(found, 71'234 - 500);
  EXPECT_LT(memory.asked, 200);
}

}  // namespace
}  // namespace bantam
