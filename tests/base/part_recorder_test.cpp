// Spans of the pool's threads: within the time that was recorded, by the threads that worked, and none otherwise.
#include "bantam/base/part_recorder.h"

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "bantam/base/parallel.h"

namespace bantam::part_recorder_test {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Two parts that both threads must run: each waits until the other has begun.
void run_on_two_threads() {
  std::atomic<int> begun = 0;
  parallel_parts(2, 2, [&](std::int64_t) {
    ++begun;
    while (begun < 2) std::this_thread::yield();
  });
}

TEST(PartRecorder, TellsWhichThreadWorkedWhen) {
  const std::int64_t begin = now_ns();
  PartRecorder recorder;
  run_on_two_threads();
  const std::vector<PartSpan> spans = recorder.stop();
  const std::int64_t end = now_ns();
  std::set<int> worked;
  int waits = 0;
  for (const PartSpan& span : spans) {
    EXPECT_GE(span.begin_ns, begin);
    EXPECT_LE(span.begin_ns, span.end_ns);
    EXPECT_LE(span.end_ns, end);
    if (span.waits) {
      ++waits;
      EXPECT_EQ(span.thread, 0) << "only the caller waits";
    } else {
      worked.insert(span.thread);
    }
  }
  EXPECT_EQ(worked.size(), 2u);
  EXPECT_TRUE(worked.contains(0)) << "the caller";
  EXPECT_EQ(waits, 1);
}

TEST(PartRecorder, RecordsNothingBeforeAfterAndOfOneThread) {
  run_on_two_threads();
  PartRecorder recorder;
  parallel_parts(4, 1, [](std::int64_t) {});
  parallel_parts(1, 2, [](std::int64_t) {});
  EXPECT_TRUE(recorder.stop().empty());
  run_on_two_threads();
  EXPECT_TRUE(recorder.stop().empty()) << "it was stopped";
  EXPECT_TRUE(PartRecorder().stop().empty()) << "of another one's time";
}

}  // namespace
}  // namespace bantam::part_recorder_test
