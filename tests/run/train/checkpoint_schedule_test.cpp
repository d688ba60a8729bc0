// When a checkpoint is due, on a clock that the test sets.
#include "bantam/run/train/checkpoint_schedule.h"

#include <gtest/gtest.h>

namespace bantam::run::checkpoint_schedule_test {
namespace {

using Clock = CheckpointSchedule::Clock;

Clock::time_point at(int seconds) { return Clock::time_point(std::chrono::seconds(1000 + seconds)); }

CheckpointConfig config(std::vector<Duration> every, std::int64_t min_seconds = 0) {
  return {.every = std::move(every), .min_seconds = min_seconds};
}

TEST(CheckpointScheduleTest, MultiplesOfUpdatesAlsoWhereItIsAskedLate) {
  const CheckpointConfig every = config({Duration::updates(10)});
  CheckpointSchedule schedule(every, 7, 0, at(0));
  EXPECT_FALSE(schedule.due(9, 0, at(1)));
  EXPECT_TRUE(schedule.due(14, 0, at(1))) << "a launch has gone past 10";
  schedule.note_saved(at(1));
  EXPECT_FALSE(schedule.due(19, 0, at(2))) << "10 updates count from the run's beginning, not from the checkpoint";
  EXPECT_TRUE(schedule.due(20, 0, at(2)));
}

TEST(CheckpointScheduleTest, WhatIsDueStaysSoUntilItIsSaved) {
  const CheckpointConfig every = config({Duration::updates(10)});
  CheckpointSchedule schedule(every, 0, 0, at(0));
  EXPECT_TRUE(schedule.due(10, 0, at(1)));
  EXPECT_TRUE(schedule.due(11, 0, at(2))) << "the one before was still being written";
  schedule.note_saved(at(2));
  EXPECT_FALSE(schedule.due(12, 0, at(3)));
}

TEST(CheckpointScheduleTest, EpochsCountWithTheirEvaluation) {
  const CheckpointConfig every = config({Duration::epochs(2)});
  CheckpointSchedule schedule(every, 0, 0, at(0));
  EXPECT_FALSE(schedule.due(6, 0, at(1)));
  EXPECT_FALSE(schedule.due(6, 1, at(2)));
  EXPECT_FALSE(schedule.due(12, 1, at(3))) << "all updates of two epochs, but not the evaluation";
  EXPECT_TRUE(schedule.due(12, 2, at(4)));
}

TEST(CheckpointScheduleTest, SecondsCountFromTheLastCheckpoint) {
  const CheckpointConfig every = config({Duration::seconds(60)});
  CheckpointSchedule schedule(every, 0, 0, at(0));
  EXPECT_FALSE(schedule.due(1, 0, at(59)));
  EXPECT_TRUE(schedule.due(2, 0, at(70)));
  schedule.note_saved(at(70));
  EXPECT_FALSE(schedule.due(3, 0, at(129)));
  EXPECT_TRUE(schedule.due(4, 0, at(130)));
}

TEST(CheckpointScheduleTest, OfSeveralTheFirstCountsAndOneSaveIsForAll) {
  const CheckpointConfig every = config({Duration::epochs(1), Duration::seconds(60), Duration::updates(100)});
  CheckpointSchedule schedule(every, 0, 0, at(0));
  EXPECT_TRUE(schedule.due(50, 1, at(10)));
  schedule.note_saved(at(10));
  EXPECT_FALSE(schedule.due(99, 1, at(69)));
  EXPECT_TRUE(schedule.due(100, 2, at(70))) << "all three";
  schedule.note_saved(at(70));
  EXPECT_FALSE(schedule.due(101, 2, at(71)));
}

TEST(CheckpointScheduleTest, WhatComesTooSoonWaits) {
  const CheckpointConfig every = config({Duration::updates(10)}, 30);
  CheckpointSchedule schedule(every, 0, 0, at(0));
  EXPECT_FALSE(schedule.due(10, 0, at(5))) << "the run has just begun";
  EXPECT_FALSE(schedule.due(11, 0, at(29)));
  EXPECT_TRUE(schedule.due(12, 0, at(30))) << "though no multiple was passed since it was last asked";
  schedule.note_saved(at(30));
  EXPECT_FALSE(schedule.due(20, 0, at(59)));
  EXPECT_TRUE(schedule.due(21, 0, at(60)));
}

TEST(CheckpointScheduleTest, OffIsNever) {
  const CheckpointConfig every = config({});
  CheckpointSchedule schedule(every, 0, 0, at(0));
  EXPECT_FALSE(schedule.due(1'000'000, 1000, at(1'000'000)));
}

}  // namespace
}  // namespace bantam::run::checkpoint_schedule_test
