// Tasks beside the thread that asks for them.
#include "bantam/run/train/background_task.h"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace bantam::run::background_task_test {
namespace {

TEST(BackgroundTaskTest, RunsOneAfterAnotherOnItsOwnThread) {
  BackgroundTask task;
  EXPECT_FALSE(task.busy());
  std::vector<int> order;
  std::thread::id where;
  for (int i = 0; i < 3; ++i) {
    task.start([&, i] {
      order.push_back(i);
      where = std::this_thread::get_id();
    });
    EXPECT_TRUE(task.busy());
    task.wait();
    EXPECT_FALSE(task.busy());
  }
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  EXPECT_NE(where, std::this_thread::get_id());
}

TEST(BackgroundTaskTest, IsBusyUntilItsEndIsReported) {
  BackgroundTask task;
  std::atomic<bool> may_end = false;
  task.start([&] { may_end.wait(false); });
  EXPECT_FALSE(task.finished());
  may_end = true;
  may_end.notify_all();
  while (!task.finished()) std::this_thread::yield();
  EXPECT_TRUE(task.busy()) << "nobody has asked what came of it";
  task.wait();
  EXPECT_FALSE(task.busy());
}

TEST(BackgroundTaskTest, WhatATaskThrowsComesOutOfWaitOnce) {
  BackgroundTask task;
  task.start([] { throw std::runtime_error("no room"); });
  try {
    task.wait();
    ADD_FAILURE() << "wait has thrown nothing";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "no room");
  }
  EXPECT_FALSE(task.busy());
  bool ran = false;
  task.start([&] { ran = true; });
  EXPECT_NO_THROW(task.wait()) << "of the task before";
  EXPECT_TRUE(ran);
}

TEST(BackgroundTaskTest, TheDestructorWaits) {
  std::atomic<bool> done = false;
  {
    BackgroundTask task;
    task.start([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      done = true;
    });
  }
  EXPECT_TRUE(done);
  { const BackgroundTask idle; }
}

}  // namespace
}  // namespace bantam::run::background_task_test
