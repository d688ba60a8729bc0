// The handlers as a scope: the handlers restored after it.
#include "bantam/cli/signals.h"

#include <csignal>

#include <gtest/gtest.h>

namespace bantam::cli::signals_test {
namespace {

void other_handler(int) {}

TEST(StopOnSignal, LeavesWhatItFound) {
  std::signal(SIGHUP, SIG_IGN);
  std::signal(SIGTERM, other_handler);
  std::signal(SIGINT, SIG_DFL);
  {
    StopOnSignal stop;
    stop.begin_training();
    std::raise(SIGHUP);
    EXPECT_FALSE(stop.requested()) << "what the parent ignores stays ignored";
  }
  EXPECT_EQ(std::signal(SIGHUP, SIG_DFL), SIG_IGN);
  EXPECT_EQ(std::signal(SIGTERM, SIG_DFL), other_handler);
  EXPECT_EQ(std::signal(SIGINT, SIG_DFL), SIG_DFL);
}

TEST(StopOnSignal, TheFirstSignalCountsAndItsTwinDoesNot) {
  for (const int number : {SIGHUP, SIGTERM, SIGINT}) std::signal(number, SIG_DFL);
  {
    StopOnSignal stop;
    stop.begin_training();
    EXPECT_EQ(stop.signal(), 0);
    std::raise(SIGTERM);
    std::raise(SIGINT);
    std::raise(SIGTERM);
    EXPECT_TRUE(stop.requested());
    EXPECT_EQ(stop.signal(), SIGTERM);
    stop.note_saved();
  }
  std::raise(SIGINT);  // a twin that comes when the run has returned
  {
    const StopOnSignal next;
    EXPECT_FALSE(next.requested()) << "another run begins anew";
  }
  EXPECT_EQ(std::signal(SIGTERM, SIG_DFL), SIG_DFL);
}

TEST(StopOnSignal, OneSignalIsHeardByTheRunsThatFollow) {
  std::signal(SIGTERM, SIG_DFL);
  StopOnSignal stop;
  for (int run = 0; run < 2; ++run) {
    stop.begin_start();
    EXPECT_FALSE(stop.requested());
    stop.begin_training();
    stop.note_saved();
  }
  std::raise(SIGTERM);  // between two runs
  stop.begin_start();
  EXPECT_TRUE(stop.requested());
}

TEST(StopOnSignal, ExitCodes) {
  EXPECT_EQ(stop_exit_code(SIGINT), 130);
  EXPECT_EQ(stop_exit_code(SIGTERM), 75);
  EXPECT_EQ(stop_exit_code(SIGHUP), 75);
}

}  // namespace
}  // namespace bantam::cli::signals_test
