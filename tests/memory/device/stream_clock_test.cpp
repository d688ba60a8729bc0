// Marks on the CPU are readings of the host's clock, in order.
#include "bantam/memory/device/stream_clock.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

namespace bantam::stream_clock_test {
namespace {

TEST(StreamClock, MarksAreNumberedAndTimesPass) {
  StreamClock clock(Stream{});
  EXPECT_TRUE(clock.times().empty());
  EXPECT_EQ(clock.mark(), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(clock.mark(), 1);
  EXPECT_EQ(clock.mark(), 2);
  const std::vector<std::int64_t> times = clock.times();
  ASSERT_EQ(times.size(), 3u);
  EXPECT_GE(times[1] - times[0], 5'000'000);
  EXPECT_GE(times[2], times[1]);
  EXPECT_EQ(clock.marks(), 3);
  EXPECT_EQ(clock.seconds_between(0, 1), 1e-9 * static_cast<double>(times[1] - times[0]));
}

}  // namespace
}  // namespace bantam::stream_clock_test
