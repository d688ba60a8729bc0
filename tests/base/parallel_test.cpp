// Parts over threads: each runs once, ranges depend on the shape only, the first part's exception comes out, and
// callers do not disturb each other.
#include "bantam/base/parallel.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace bantam::parallel_test {
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

// Part 3 fails last, and is still the one that one thread would have met.
TEST(ParallelParts, OfSeveralFailuresTheFirstPartsIsRethrown) {
  std::atomic<int> failed = 0;
  try {
    parallel_parts(8, 4, [&](std::int64_t i) {
      if (i < 3) return;
      while (i == 3 && failed < 4) std::this_thread::yield();
      ++failed;
      throw std::runtime_error("part " + std::to_string(i));
    });
    FAIL() << "the exceptions were lost";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "part 3");
  }
}

TEST(ParallelParts, CallersFromSeveralThreadsGetTheirOwnParts) {
  std::vector<std::thread> callers;
  std::atomic<std::int64_t> total = 0;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (int round = 0; round < 200; ++round) {
        std::vector<std::int64_t> values(9, 0);
        parallel_parts(9, 3, [&](std::int64_t i) { values[static_cast<std::size_t>(i)] = caller + i; });
        for (const std::int64_t value : values) total += value;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total.load(), 200 * (4 * 36 + 9 * (0 + 1 + 2 + 3)));
}

TEST(ParallelParts, APartMayCallAgain) {
  std::atomic<int> runs = 0;
  parallel_parts(5, 4, [&](std::int64_t) {
    const auto caller = std::this_thread::get_id();
    parallel_parts(3, 4, [&](std::int64_t) {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      ++runs;
    });
  });
  EXPECT_EQ(runs.load(), 15);
}

TEST(ParallelParts, WorkersThatSleptComeBack) {
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // they poll for less
    std::atomic<int> entered = 0;
    // Each of two parts ends only when the other has begun: the caller alone would wait for ever.
    parallel_parts(2, 2, [&](std::int64_t) {
      ++entered;
      while (entered < 2) std::this_thread::yield();
    });
    EXPECT_EQ(entered.load(), 2);
  }
}

TEST(ParallelRanges, PiecesDependOnTheCountOnly) {
  const std::set<std::pair<std::int64_t, std::int64_t>> expected = {{0, 4}, {4, 8}, {8, 10}};
  for (const int threads : {1, 2, 7}) {
    std::set<std::pair<std::int64_t, std::int64_t>> ranges;
    std::mutex guard;
    parallel_ranges(10, 4, threads, [&](std::int64_t begin, std::int64_t end) {
      const std::lock_guard lock(guard);
      ranges.emplace(begin, end);
    });
    EXPECT_EQ(ranges, expected) << threads << " threads";
  }
}

}  // namespace
}  // namespace bantam::parallel_test
