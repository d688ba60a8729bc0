// A rank that dies, hangs or fails ends all others soon, with its reason, number and host, whether they compute or
// wait.
#include "bantam/engine/comm/watch.h"

#include <random>

#include "tests/engine/comm/rank_processes.h"

namespace bantam::watch_test {
namespace {

using testing::expect_ready;
using testing::LocalRun;
using testing::RankProcess;
using testing::this_host;

constexpr double kSoon = 5;  // what a run promises

std::string failed(int rank, const std::string& reason) {
  return "ready\nfailed " + std::to_string(rank) + " " + this_host() + ": " + reason + "\nclean\n";
}

/// All but rank `but` end with this output, and soon.
void expect_ends(std::vector<RankProcess>& processes, int but, const std::string& output) {
  for (int rank = 0; rank < static_cast<int>(processes.size()); ++rank) {
    if (rank != but) {
      EXPECT_EQ(processes[static_cast<std::size_t>(rank)].output(kSoon), output) << "rank " << rank;
    }
  }
}

void kill_rank(const std::string& action, int rank) {
  SCOPED_TRACE(action + ", rank " + std::to_string(rank) + " is killed");
  LocalRun run(4);
  auto processes = run.start_all({action});
  expect_ready(processes);
  processes[static_cast<std::size_t>(rank)].signal(SIGKILL);
  expect_ends(processes, rank, failed(rank, "died (connection closed)"));
}

TEST(Watch, AKilledRankEndsRanksThatExchange) {
  kill_rank("loop", 0);
  kill_rank("loop", 2);
}

TEST(Watch, AKilledRankEndsRanksThatCompute) {
  kill_rank("wait", 0);
  kill_rank("wait", 3);
}

void stop_rank(const std::string& action, int rank) {
  SCOPED_TRACE(action + ", rank " + std::to_string(rank) + " is stopped");
  LocalRun run(3);
  auto processes = run.start_all({action, "--beat", "0.1", "--silence", "1"});
  expect_ready(processes);
  RankProcess& stopped = processes[static_cast<std::size_t>(rank)];
  stopped.signal(SIGSTOP);
  expect_ends(processes, rank, failed(rank, "not heard of for 1.0s"));
  // It learns what became of it when it goes on.
  stopped.signal(SIGCONT);
  EXPECT_NE(stopped.output(kSoon).find("ready\nfailed "), std::string::npos);
}

TEST(Watch, AStoppedRankEndsTheOthersAfterTheLimit) {
  stop_rank("loop", 1);
  stop_rank("wait", 2);
}

TEST(Watch, EachNoticesThatRankZeroIsStopped) { stop_rank("wait", 0); }

TEST(Watch, AShortHaltIsNoFailure) {
  LocalRun run(2);
  auto processes = run.start_all({"wait", "--beat", "0.1", "--silence", "20"});
  expect_ready(processes);
  processes[1].signal(SIGSTOP);
  EXPECT_FALSE(processes[0].prints("never", 0.5));
  processes[1].signal(SIGCONT);
  EXPECT_FALSE(processes[0].prints("never", 0.5));
  processes[1].signal(SIGKILL);
  expect_ends(processes, 1, failed(1, "died (connection closed)"));
}

TEST(Watch, ARankThatFailsSaysWhy) {
  for (const int rank : {0, 2}) {
    for (const char* others : {"loop", "wait"}) {
      LocalRun run(3);
      std::vector<RankProcess> processes;
      for (int r = 0; r < 3; ++r) {
        const std::vector<std::string> failing = {"fail", "out of memory: 3 MiB"}, other = {others};
        processes.push_back(run.start(r, r == rank ? failing : other));
      }
      expect_ready(processes);
      processes[static_cast<std::size_t>(rank)].signal(SIGUSR1);
      expect_ends(processes, rank, failed(rank, "out of memory: 3 MiB"));
      EXPECT_EQ(processes[static_cast<std::size_t>(rank)].output(kSoon), "ready\ndone\nclean\n");
    }
  }
}

TEST(Watch, AnExceptionIsAFailure) {
  LocalRun run(3);
  std::vector<RankProcess> processes;
  for (int rank = 0; rank < 3; ++rank) processes.push_back(run.start(rank, {rank == 1 ? "throw" : "wait"}));
  expect_ready(processes);
  processes[1].signal(SIGUSR1);
  expect_ends(processes, 1, failed(1, "ended by an error"));
}

// Many ranks, random moments, from before they have met to the middle of exchanges. Prints its seed.
TEST(Watch, DISABLED_RandomKills) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (int kill = 0; kill < 50; ++kill) {
    const int size = 2 + static_cast<int>(random() % 5),
              rank = static_cast<int>(random() % static_cast<unsigned>(size));
    LocalRun run(size);
    auto processes = run.start_all({random() % 2 ? "loop" : "wait", "--connect", "10"});
    if (random() % 4 != 0) expect_ready(processes);
    processes[0].prints("never", static_cast<double>(random() % 300) / 1000);
    processes[static_cast<std::size_t>(rank)].signal(SIGKILL);
    for (int other = 0; other < size; ++other) {
      if (other == rank) continue;
      const std::string output = processes[static_cast<std::size_t>(other)].output(kSoon);
      EXPECT_NE(output.find("failed " + std::to_string(rank) + " " + this_host()), std::string::npos)
          << "kill " << kill << ", rank " << rank << " of " << size << ", rank " << other << " printed: " << output;
      EXPECT_TRUE(output.ends_with("clean\n")) << output;
    }
  }
}

}  // namespace
}  // namespace bantam::watch_test
