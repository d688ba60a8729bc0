#include "bantam/data/files/once.h"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace bantam::once_test {
namespace {

TEST(Once, RunsOnce) {
  Once once;
  int runs = 0;
  for (int i = 0; i < 3; ++i) once.run([&] { ++runs; });
  EXPECT_EQ(runs, 1);
}

TEST(Once, AnExceptionIsPassedOnAndTheNextCallerTriesAgain) {
  Once once;
  int runs = 0;
  const auto fails_first = [&] {
    if (++runs == 1) throw std::runtime_error("first");
  };
  EXPECT_THROW(once.run(fails_first), std::runtime_error);
  once.run(fails_first);
  once.run(fails_first);
  EXPECT_EQ(runs, 2);
}

TEST(Once, OtherThreadsWaitForTheResult) {
  Once once;
  int value = 0;  // not atomic: what `run` has done is seen by all that return from it
  std::atomic<int> seen = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      once.run([&] {
        std::this_thread::yield();
        value = 7;
      });
      seen += value;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen, 28);
}

}  // namespace
}  // namespace bantam::once_test
