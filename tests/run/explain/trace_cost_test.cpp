// Recordings made by hand, from which the cost of tracing is taken off.
#include "bantam/run/explain/trace_cost.h"

#include <utility>

#include <gtest/gtest.h>

namespace bantam::run::trace_cost_test {
namespace {

/// Two updates of 1,000 ns: kernels of 400, 100 and 300, gaps of 100, 50, 0 and 50 around them.
std::vector<RecordedUpdate> two_updates() {
  std::vector<RecordedUpdate> updates;
  for (const std::int64_t at : {0, 1000}) {
    RecordedUpdate update{.begin_ns = at, .end_ns = at + 1000};
    for (const auto& [begin, end] : {std::pair(100, 500), std::pair(550, 650), std::pair(650, 950)}) {
      StepSlice slice;
      slice.begin_ns = at + begin, slice.end_ns = at + end;
      update.slices.push_back(slice);
    }
    updates.push_back(update);
  }
  return updates;
}

std::int64_t length(const StepSlice& slice) { return slice.end_ns - slice.begin_ns; }

TEST(TraceCost, ComesOffGapsFirstThenOffKernels) {
  std::vector<RecordedUpdate> updates = two_updates();
  EXPECT_DOUBLE_EQ(take_off_trace_cost(updates, 760e-9), 240e-9);  // 80 ns a slice
  const std::vector<StepSlice>& slices = updates[0].slices;
  EXPECT_EQ(slices[0].begin_ns, 20) << "the gap of 100 gives 80";
  EXPECT_EQ(length(slices[0]), 400);
  EXPECT_EQ(slices[1].begin_ns - slices[0].end_ns, 0) << "the gap of 50 gives all, the kernel 30";
  EXPECT_EQ(length(slices[1]), 70);
  EXPECT_EQ(length(slices[2]), 220);
  EXPECT_EQ(updates[0].end_ns, 760);
  EXPECT_EQ(updates[1].begin_ns, 760) << "one after another";
  EXPECT_EQ(updates[1].end_ns, 1520);
  EXPECT_EQ(length(updates[1].slices[0]), 400);
}

TEST(TraceCost, WhatAShortKernelCannotGiveTheNextOnesDo) {
  std::vector<RecordedUpdate> updates = two_updates();
  EXPECT_NEAR(take_off_trace_cost(updates, 550e-9), 450e-9, 1e-9);  // 150 ns a slice
  EXPECT_EQ(length(updates[0].slices[0]), 350);
  EXPECT_EQ(length(updates[0].slices[1]), 50) << "half of it stays";
  EXPECT_EQ(length(updates[0].slices[2]), 150);
  EXPECT_EQ(updates[1].end_ns, 1100);
}

TEST(TraceCost, NothingComesOffWhereTracingWasFree) {
  for (const double plain : {1000e-9, 1200e-9}) {
    std::vector<RecordedUpdate> updates = two_updates();
    EXPECT_EQ(take_off_trace_cost(updates, plain), 0);
    EXPECT_EQ(updates[1].end_ns, 2000);
    EXPECT_EQ(updates[1].slices[2].begin_ns, 1650);
  }
  std::vector<RecordedUpdate> empty;
  EXPECT_EQ(take_off_trace_cost(empty, 1), 0);
}

}  // namespace
}  // namespace bantam::run::trace_cost_test
