// Seeds: whatever happens to ranks and streams, every run ends, with right sums or the right reason.
// BANTAM_SIMULATED_SEEDS=N runs N seeds of the exchange (nightly more than usual); BANTAM_SIMULATED_SEED=S runs seed S
// alone.
#include "bantam/engine/comm/simulator.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>

#include <gtest/gtest.h>

#include "bantam/base/clock.h"
#include "bantam/engine/comm/collectives.h"
#include "tests/engine/comm/tree_sums.h"

namespace bantam::simulator_test {
namespace {

using testing::random_shares;
using testing::RankPlane;
using testing::tree_sum;

std::uint64_t setting(const char* name, std::uint64_t usual) {
  const char* value = std::getenv(name);
  return value == nullptr ? usual : std::strtoull(value, nullptr, 10);
}

/// What training does with its communicator, without the training: a text, then updates, digests now and then.
struct Updates {
  int replicas = 1, updates = 1;
  std::vector<ReplicaShare> shares;
  std::size_t elements = 0;
  TreeExchangeOptions options;
  std::vector<std::vector<float>> roots;  // of each update

  explicit Updates(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    replicas = 1 << (random() % 5);
    const int ranks = 1 + static_cast<int>(random() % static_cast<std::uint64_t>(replicas));
    shares = random_shares(replicas, ranks, random);
    updates = 1 + static_cast<int>(random() % 6);
    elements = random() % (random() % 4 == 0 ? 5000 : 300);
    options.piece_bytes = 64u << (random() % 6);
    if (seed % 500 == 250) {  // one large run
      replicas = 64;
      shares = even_shares(64, 64);
      updates = 1;
      elements = 100;
    }
    int level = 0;
    while ((1 << level) < replicas) ++level;
    for (int update = 0; update < updates; ++update)
      roots.push_back(tree_sum<float>(static_cast<std::uint64_t>(update), {0, level}, elements));
  }
  int ranks() const { return static_cast<int>(shares.size()); }

  void operator()(Communicator& communicator, int rank) const {
    const ReplicaShare& share = shares[static_cast<std::size_t>(rank)];
    EXPECT_EQ(broadcast_text(communicator, rank == 0 ? "config" : ""), "config");
    TreeExchange exchange(communicator, replicas, shares, options);
    std::vector<std::byte> workspace(exchange.workspace_bytes());
    for (int update = 0; update < updates; ++update) {
      const RankPlane<float> plane(static_cast<std::uint64_t>(update), share, elements, update % 2 == 0);
      exchange.run(std::span(&plane.plane, 1), workspace);
      EXPECT_TRUE(plane.result() == roots[static_cast<std::size_t>(update)]);
      if (update % 3 == 2) {
        EXPECT_EQ(all_gather_texts(communicator, "digest").size(), shares.size());
      }
    }
    barrier(communicator);
  }
};

SimulationOptions faulty() {
  SimulationOptions options;
  options.world.most_faults = 2;
  return options;
}

TEST(Simulator, EveryRunEndsWithRightSumsOrTheRightReason) {
  const std::uint64_t only = setting("BANTAM_SIMULATED_SEED", 0);
  const std::uint64_t seeds = setting("BANTAM_SIMULATED_SEEDS", 300);
  const auto start = std::chrono::steady_clock::now();
  std::map<std::string, int> ends;
  for (std::uint64_t seed = only > 0 ? only : 1; seed <= (only > 0 ? only : seeds); ++seed) {
    const Updates updates(seed);
    const SimulatedRun run = run_simulated(seed, updates.ranks(), faulty(), updates);
    ASSERT_EQ(run.wrong(), "") << "replay: BANTAM_SIMULATED_SEED=" << seed;
    if (run.culprits.empty()) {
      EXPECT_TRUE(run.all_done()) << seed;
    }
    ++ends[run.all_done() ? "done" : "stopped"];
    if (run.all_done() && !run.culprits.empty()) ++ends["done in spite of faults"];
  }
  for (const auto& [end, count] : ends) std::printf("%d %s\n", count, end.c_str());
  std::printf("%.1f s\n", seconds_since(start));
  if (only == 0) {
    EXPECT_GT(ends["done"], static_cast<int>(seeds / 10));
    EXPECT_GT(ends["stopped"], static_cast<int>(seeds / 10));
  }
}

TEST(Simulator, ASeedReplaysItsSchedule) {
  std::uint64_t five_ranks = 1;
  while (Updates(five_ranks).ranks() != 5) ++five_ranks;
  std::map<std::uint64_t, int> schedules;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const Updates updates(five_ranks);  // the same work
    const SimulatedRun first = run_simulated(seed, updates.ranks(), faulty(), updates);
    const SimulatedRun second = run_simulated(seed, updates.ranks(), faulty(), updates);
    EXPECT_EQ(first.schedule_hash, second.schedule_hash) << seed;
    EXPECT_EQ(first.faults, second.faults) << seed;
    EXPECT_EQ(first.seconds, second.seconds) << seed;
    EXPECT_EQ(first.calls, second.calls) << seed;
    ++schedules[first.schedule_hash];
  }
  EXPECT_EQ(schedules.size(), 30u);
}

TEST(Simulator, RanksThatWaitForNothingAreFound) {
  SimulationOptions options;
  options.mesh.silence_seconds = 0;
  const auto wait_in_a_circle = [](Communicator& ranks, int rank) {
    std::byte byte{};
    const IncomingMessage in{(rank + 1) % ranks.size(), std::span(&byte, 1)};
    ranks.exchange({}, std::span(&in, 1));
  };
  for (const double silence : {0.0, 30.0}) {  // without heartbeats nothing can happen; with them the clock goes on
    options.mesh.silence_seconds = silence;
    const SimulatedRun run = run_simulated(3, 3, options, wait_in_a_circle);
    EXPECT_TRUE(run.stuck);
    EXPECT_NE(run.wrong().find("simulation with seed 3 and 3 ranks"), std::string::npos) << run.wrong();
    EXPECT_NE(run.wrong().find("the run does not end"), std::string::npos) << run.wrong();
  }
}

TEST(Simulator, AWrongReasonIsFound) {
  const SimulatedRun run = run_simulated(1, 3, {}, [](Communicator& ranks, int rank) {
    if (rank == 1) throw Error("its own");
    barrier(ranks);
  });
  EXPECT_NE(run.wrong().find("rank 0 blames rank 1, which no fault concerned"), std::string::npos) << run.wrong();
  EXPECT_NE(run.wrong().find("rank 1: error (its own)"), std::string::npos) << run.wrong();
}

/// Each kind of fault alone, in the midst of updates: what all others say.
TEST(Simulator, EachFaultHasItsReason) {
  using Kind = SimulatedFault::Kind;
  const std::map<Kind, std::set<std::string>> reasons = {{Kind::death, {"died (connection closed)"}},
                                                         {Kind::silent_death, {"no message for 30 s"}},
                                                         {Kind::lost_connection, {"connection lost: connection reset"}},
                                                         {Kind::silent_connection, {"no message for 30 s"}},
                                                         {Kind::stall, {"no message for 30 s"}}};
  for (const auto& [kind, expected] : reasons) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      SimulationOptions options;
      options.world.faults = {{kind, 2, 1, 100, kind == Kind::stall ? 45.0 : 1.0}};
      const SimulatedRun run = run_simulated(seed, 4, options, [](Communicator& ranks, int) {
        for (int i = 0; i < 200; ++i) all_gather_texts(ranks, std::string(3000, 'x'));
      });
      EXPECT_EQ(run.wrong(), "");
      ASSERT_EQ(run.faults.size(), 1u);
      for (const SimulatedRank& rank : run.ranks) {
        if (rank.end == SimulatedRank::End::died) continue;
        EXPECT_EQ(rank.end, SimulatedRank::End::failed) << run.faults[0] << seed;
        EXPECT_TRUE(expected.contains(rank.failure.reason)) << run.faults[0] << ": " << rank.message;
      }
    }
  }
}

}  // namespace
}  // namespace bantam::simulator_test
