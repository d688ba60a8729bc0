// Parts over threads: each runs once, pieces depend on the shape only, and the first exception comes out.
#include "bantam/base/parallel.h"

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace bantam {
namespace {

TEST(ParallelParts, RunsEachPartOnce) {
  for (const int threads : {0, 1, 4}) {
    std::vector<std::atomic<int>> runs(37);
    parallel_parts(37, threads, [&](std::int64_t i) { ++runs[static_cast<std::size_t>(i)]; });
    for (const auto& count : runs) EXPECT_EQ(count.load(), 1) << threads << " threads";
  }
  parallel_parts(0, 4, [](std::int64_t) { FAIL() << "there is no part to run"; });
}

TEST(ParallelParts, RethrowsAfterAllPartsEnded) {
  for (const int threads : {1, 4}) {
    std::atomic<int> ended = 0;
    try {
      parallel_parts(20, threads, [&](std::int64_t i) {
        if (i == 3) throw std::runtime_error("part 3");
        ++ended;
      });
      FAIL() << "the exception was lost";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "part 3");
    }
    EXPECT_EQ(ended.load(), threads > 1 ? 19 : 3);  // alone, the parts after the failed one are not begun
  }
}

TEST(ParallelRanges, PiecesDependOnTheCountOnly) {
  const std::set<std::pair<std::int64_t, std::int64_t>> expected = {{0, 4}, {4, 8}, {8, 10}};
  for (const int threads : {1, 2, 7}) {
    std::set<std::pair<std::int64_t, std::int64_t>> pieces;
    std::mutex guard;
    parallel_ranges(10, 4, threads, [&](std::int64_t begin, std::int64_t end) {
      const std::lock_guard lock(guard);
      pieces.emplace(begin, end);
    });
    EXPECT_EQ(pieces, expected) << threads << " threads";
  }
}

}  // namespace
}  // namespace bantam
