// Workers run what they are given, hand on what it throws, and stop cleanly; the tuner adds workers only while batches
// are waited for.
#include "bantam/data/delivery/worker_pool.h"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace bantam::worker_pool_test {
namespace {

TEST(WorkerPool, RunsAllWork) {
  for (const std::int64_t workers : {1, 2, 5}) {
    WorkerPool pool;
    pool.grow_to(workers);
    std::vector<int> results(100);
    std::vector<WorkerPool::Ticket> tickets;
    for (int i = 0; i < 100; ++i)
      tickets.push_back(pool.submit([&results, i] { results[static_cast<std::size_t>(i)] = i + 1; }));
    for (std::size_t i = 0; i < 100; ++i) {
      pool.wait(tickets[i]);
      EXPECT_TRUE(pool.done(tickets[i]));
      EXPECT_EQ(results[i], static_cast<int>(i) + 1);
    }
  }
}

TEST(WorkerPool, WaitRethrowsAndTheWorkerLives) {
  WorkerPool pool;
  pool.grow_to(1);
  const auto bad = pool.submit([] { throw std::runtime_error("broken record"); });
  try {
    pool.wait(bad);
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(std::string(error.what()), "broken record");
  }
  bool ran = false;
  pool.wait(pool.submit([&] { ran = true; }));
  EXPECT_TRUE(ran);
}

TEST(WorkerPool, ClearDropsWhatHasNotBegunAndWaitsForTheRest) {
  WorkerPool pool;
  pool.grow_to(1);
  std::atomic<bool> begun{false}, go_on{false};
  std::atomic<int> ended{0};
  (void)pool.submit([&] {
    begun = true;
    while (!go_on) std::this_thread::yield();
    ++ended;
  });
  while (!begun) std::this_thread::yield();
  for (int i = 0; i < 10; ++i) (void)pool.submit([&] { ended += 100; });
  std::thread release([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    go_on = true;
  });
  pool.clear();
  EXPECT_EQ(ended, 1);  // the running one was waited for, none of the others ran
  release.join();
}

// Both parts wait for each other: two workers do one task at once.
TEST(WorkerPool, SeveralWorkersShareATask) {
  WorkerPool pool;
  pool.grow_to(2);
  std::atomic<int> begun{0};
  std::vector<int> done(2);
  const auto task = pool.submit(
      [&](std::int64_t part) {
        ++begun;
        for (int tries = 0; tries < 10000 && begun < 2; ++tries)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        done[static_cast<std::size_t>(part)] = begun;
      },
      2);
  pool.wait(task);
  EXPECT_EQ(done, (std::vector<int>{2, 2}));
}

TEST(WorkerPool, AfterAFailureTheTasksOtherPartsAreDropped) {
  WorkerPool pool;
  pool.grow_to(1);
  std::vector<std::int64_t> ran;
  const auto bad = pool.submit(
      [&](std::int64_t part) {
        ran.push_back(part);
        if (part == 2) throw std::runtime_error("broken record");
      },
      10);
  const auto next = pool.submit([&](std::int64_t part) { ran.push_back(100 + part); }, 2);
  EXPECT_THROW(pool.wait(bad), std::runtime_error);
  pool.wait(next);
  EXPECT_EQ(ran, (std::vector<std::int64_t>{0, 1, 2, 100, 101}));
}

// Part 0 fails after part 1: which of two fails first does not decide which failure is told.
TEST(WorkerPool, OfSeveralFailuresTheFirstPartsIsRethrown) {
  WorkerPool pool;
  pool.grow_to(2);
  std::atomic<bool> second_begun = false;
  const auto bad = pool.submit(
      [&](std::int64_t part) {
        if (part == 1) second_begun = true;
        while (part == 0 && !second_begun) std::this_thread::yield();
        if (part == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        throw std::runtime_error("part " + std::to_string(part));
      },
      2);
  try {
    pool.wait(bad);
    FAIL() << "the exceptions were lost";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "part 0");
  }
}

// Both workers are blocked until the end drops what is queued, which lets go of `queued`. An end that drops nothing
// leaves them after ten seconds, and then everything runs.
TEST(WorkerPool, EndsWithWorkLeft) {
  std::atomic<int> ran{0}, blocked{0};
  auto queued = std::make_shared<int>(1);
  {
    WorkerPool pool;
    pool.grow_to(2);
    const std::weak_ptr<int> left = queued;
    for (int i = 0; i < 2; ++i)
      (void)pool.submit([&blocked, left] {
        ++blocked;
        for (int tries = 0; tries < 10000 && !left.expired(); ++tries)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
      });
    for (int i = 0; i < 1000; ++i) (void)pool.submit([&ran, queued] { ++ran; });
    queued.reset();
    while (blocked < 2) std::this_thread::yield();
  }
  EXPECT_EQ(ran, 0);
}

TEST(PrefetchTuner, FixedValuesStay) {
  PrefetchTuner tuner(3, 2, {.most = 8});
  for (int i = 0; i < 1000; ++i) tuner.on_batch(true);
  EXPECT_EQ(tuner.depth(), 3);
  EXPECT_EQ(tuner.workers(), 2);
}

TEST(PrefetchTuner, ExplicitWorkersGetADepthThatUsesThem) {
  PrefetchTuner tuner(-1, 12, {.most = 4});
  EXPECT_EQ(tuner.workers(), 12);
  EXPECT_EQ(tuner.depth(), 13);
  for (int i = 0; i < 1000; ++i) tuner.on_batch(true);
  EXPECT_EQ(tuner.depth(), 13);
}

TEST(PrefetchTuner, AddsWorkersWhileBatchesAreWaitedFor) {
  PrefetchTuner tuner(-1, -1, {.most = 4});
  EXPECT_EQ(tuner.workers(), 1);
  EXPECT_EQ(tuner.depth(), 2);
  for (int i = 0; i < 8; ++i) tuner.on_batch(true);
  EXPECT_EQ(tuner.workers(), 3);
  EXPECT_GE(tuner.depth(), 3);
  for (int i = 0; i < 1000; ++i) tuner.on_batch(true);
  EXPECT_EQ(tuner.workers(), 4);  // its bound
  EXPECT_EQ(tuner.depth(), 8);
}

TEST(PrefetchTuner, WhereWorkersShareBatchesTheDepthComesLast) {
  PrefetchTuner tuner(-1, -1, {.first = 6, .most = 8, .share_batches = true});
  EXPECT_EQ(tuner.workers(), 6);
  EXPECT_EQ(tuner.depth(), 2);
  for (int i = 0; i < 8; ++i) tuner.on_batch(true);
  EXPECT_EQ(tuner.workers(), 8);
  EXPECT_EQ(tuner.depth(), 2);
  for (int i = 0; i < 4; ++i) tuner.on_batch(true);
  EXPECT_EQ(tuner.depth(), 3);
  PrefetchTuner asked(-1, 12, {.most = 8, .share_batches = true});
  EXPECT_EQ(asked.depth(), 2);
}

TEST(PrefetchTuner, LeavesWhatIsFastEnough) {
  PrefetchTuner tuner(-1, -1, {.most = 4});
  for (int i = 0; i < 1000; ++i) tuner.on_batch(i % 100 == 0);  // a rare hiccup
  EXPECT_EQ(tuner.workers(), 1);
  // The first batches after a start are always waited for, and do not count.
  for (int epoch = 0; epoch < 100; ++epoch) {
    tuner.on_start();
    for (std::int64_t i = 0; i < 2; ++i) tuner.on_batch(true);
  }
  EXPECT_EQ(tuner.workers(), 1);
}

}  // namespace
}  // namespace bantam::worker_pool_test
