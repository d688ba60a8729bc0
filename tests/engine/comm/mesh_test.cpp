// How ranks talk among threads, and how all of them end when one fails.
#include "bantam/engine/comm/mesh.h"

#include <algorithm>
#include <atomic>
#include <semaphore>

#include <gtest/gtest.h>

#include "bantam/engine/comm/collectives.h"
#include "bantam/engine/comm/simulator.h"
#include "tests/engine/comm/on_ranks.h"
#include "tests/engine/message_of.h"

namespace bantam::mesh_test {
namespace {

using testing::message_of;
using testing::nothing_thrown;
using testing::on_ranks;

/// One message to and from `peer`.
void exchange_with(Communicator& ranks, int peer, std::size_t out_bytes, std::size_t in_bytes) {
  const std::vector<std::byte> sent(out_bytes, static_cast<std::byte>(ranks.rank() + 1));
  std::vector<std::byte> received(in_bytes);
  const OutgoingMessage out{peer, sent};
  const IncomingMessage in{peer, received};
  ranks.exchange(std::span(&out, out_bytes > 0 ? 1 : 0), std::span(&in, in_bytes > 0 ? 1 : 0));
  EXPECT_EQ(received, std::vector<std::byte>(in_bytes, static_cast<std::byte>(peer + 1)));
}

TEST(Mesh, LargeMessagesInBothDirectionsDoNotWaitForEachOther) {
  for (const std::size_t bytes : {std::size_t{4096}, std::size_t{4097}, std::size_t{3 << 20}}) {
    const auto thrown = on_ranks(
        2, [&](Mesh& mesh, int rank) { exchange_with(mesh, 1 - rank, bytes, bytes); }, {}, 777);
    EXPECT_EQ(thrown, nothing_thrown(2));
  }
}

TEST(Mesh, MessagesThatComeBeforeTheyAreAskedForArriveInOrder) {
  const auto thrown = on_ranks(2, [](Mesh& mesh, int rank) {
    std::vector<std::vector<std::byte>> messages;
    for (std::size_t i = 0; i < 300; ++i) messages.emplace_back(i % 50 == 0 ? 9000 : i % 7, static_cast<std::byte>(i));
    for (const auto& message : messages) {
      std::vector<std::byte> received(message.size());
      const OutgoingMessage out{1, message};
      const IncomingMessage in{0, received};
      if (rank == 0) mesh.exchange(std::span(&out, 1), {});
      if (rank == 1) mesh.exchange({}, std::span(&in, 1));
      if (rank == 1) {
        EXPECT_EQ(received, message);
      }
    }
  });
  EXPECT_EQ(thrown, nothing_thrown(2));
}

TEST(Mesh, SizesThatDifferNameBothRanks) {
  for (const std::size_t bytes : {std::size_t{200}, std::size_t{100'000}}) {
    const auto thrown = on_ranks(3, [&](Mesh& mesh, int rank) {
      if (rank == 0) exchange_with(mesh, 1, bytes, 0);
      if (rank == 1) exchange_with(mesh, 0, 0, 100);
      barrier(mesh);
    });
    const std::string expected = "1: rank 1: rank 1 expects 100 bytes from rank 0, which sends " +
                                 std::to_string(bytes) + " (message 0 between them)";
    EXPECT_EQ(thrown, std::vector<std::string>(3, expected));
  }
}

TEST(Mesh, RanksThatDoNotExistAreErrors) {
  const auto thrown = on_ranks(2, [](Mesh& mesh, int rank) {
    for (const int peer : {rank, 2, -1}) {
      EXPECT_EQ(message_of([&] { exchange_with(mesh, peer, 1, 0); }),
                "rank " + std::to_string(rank) + " of 2 cannot exchange messages with rank " + std::to_string(peer));
    }
    barrier(mesh);
  });
  EXPECT_EQ(thrown, nothing_thrown(2));
}

TEST(Mesh, AFailureReachesAllOthers) {
  const auto thrown = on_ranks(4, [](Mesh& mesh, int rank) {
    barrier(mesh);
    if (rank == 2) throw OutOfMemory("out of memory: 5 GiB", {});
    while (true) barrier(mesh);
  });
  const std::string others = "2: rank 2: out of memory: 5 GiB";
  EXPECT_EQ(thrown, (std::vector<std::string>{others, others, "out of memory: 5 GiB", others}));
}

TEST(Mesh, AThreadBesideTheExchangeEndsItForAll) {
  std::binary_semaphore failed(0);
  const auto thrown = on_ranks(3, [&](Mesh& mesh, int rank) {
    std::jthread beside;
    if (rank == 1) {
      beside = std::jthread([&] {
        mesh.fail("told to stop");
        failed.release();
      });
    }
    if (rank == 0) {  // computes while that happens; the next call throws
      failed.acquire();
      while (!mesh.failure()) exchange_with(mesh, 2, 0, 0);
    }
    exchange_with(mesh, (rank + 1) % 3, 0, 1 << 20);  // comes never
  });
  EXPECT_EQ(thrown, std::vector<std::string>(3, "1: rank 1: told to stop"));
}

TEST(Mesh, TheFirstFailureCounts) {
  const auto thrown = on_ranks(2, [](Mesh& mesh, int rank) {
    if (rank == 0) {
      mesh.fail("first");
      mesh.fail("second");
      EXPECT_EQ(mesh.failure()->reason, "first");
    }
    while (true) barrier(mesh);
  });
  EXPECT_EQ(thrown, std::vector<std::string>(2, "0: rank 0: first"));
}

TEST(Mesh, AMessageThatIsAbandonedIsNeverComplete) {
  std::atomic<bool> completed = false;
  const auto thrown = on_ranks(
      2,
      [&](Mesh& mesh, int rank) {
        if (rank == 1) {
          exchange_with(mesh, 0, 1, 0);
          exchange_with(mesh, 0, 0, 1 << 16);
          completed = true;
          return;
        }
        exchange_with(mesh, 1, 0, 1);
        std::jthread beside([&] { mesh.fail("in the middle"); });
        exchange_with(mesh, 1, 1 << 16, 0);
        beside.join();
        exchange_with(mesh, 1, 0, 1);
      },
      {}, 1000);
  EXPECT_EQ(thrown[0], "0: rank 0: in the middle");
  EXPECT_TRUE(completed ? thrown[1].empty() : thrown[1] == "0: rank 0: in the middle") << thrown[1];
}

TEST(Mesh, AStreamThatEndsWithoutGoodbyeIsADeath) {
  std::vector<std::unique_ptr<Network>> networks = local_networks(3);
  std::vector<std::string> thrown(3);
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      if (rank == 1) return networks[1].reset();
      Mesh mesh(std::move(networks[rank]));
      thrown[rank] = message_of([&] { barrier(mesh); });
      EXPECT_EQ(message_of([&] { barrier(mesh); }), thrown[rank]);
    });
  }
  threads.clear();
  EXPECT_EQ(thrown,
            (std::vector<std::string>{"rank 1: died (connection closed)", "", "rank 1: died (connection closed)"}));
}

TEST(Mesh, ARankThatEndsInOrderIsMissedOnlyWhereItIsWaitedFor) {
  const auto thrown = on_ranks(3, [](Mesh& mesh, int rank) {
    barrier(mesh);
    if (rank == 2) return;
    for (int i = 0; i < 100; ++i) exchange_with(mesh, 1 - rank, 10, 10);
    if (rank == 0) exchange_with(mesh, 2, 0, 10);
  });
  EXPECT_EQ(thrown[0], "2: rank 2: ended while rank 0 waited for it");
}

TEST(Mesh, AnErrorThatNobodyReportsIsAFailure) {
  std::vector<std::unique_ptr<Network>> networks = local_networks(2);
  std::jthread other([&] {
    try {
      const Mesh mesh(std::move(networks[1]));
      throw Error("lost");
    } catch (const Error&) {
    }
  });
  Mesh mesh(std::move(networks[0]));
  EXPECT_EQ(message_of([&] { barrier(mesh); }), "rank 1: ended by an error");
}

TEST(Mesh, ARankThatIsSilentHasFailed) {
  std::vector<std::unique_ptr<Network>> networks = local_networks(3);
  std::vector<std::string> thrown(3);
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Mesh mesh(std::move(networks[rank]), {.silence_seconds = 0.25});
      thrown[rank] = message_of([&] { barrier(mesh); });
    });
  }
  threads.clear();
  EXPECT_EQ(thrown[0], "rank 2: no message for 0.250000 s");
  EXPECT_EQ(thrown[1], thrown[0]);
}

TEST(Mesh, AForeignStreamIsNoMessage) {
  std::vector<std::unique_ptr<Network>> networks = local_networks(2);
  const std::string text = "GET / HTTP/1.1\r\nHost: here\r\n";
  networks[1]->write(0, std::as_bytes(std::span(text)));
  Mesh mesh(std::move(networks[0]));
  EXPECT_EQ(message_of([&] { exchange_with(mesh, 1, 0, 5); }),
            "rank 0: rank 0 received bytes from rank 1 that are not the frame that has to come (of another version of "
            "Bantam?)");
}

// Ranks that wait tell the others that they live: all name the one that is dead, not the one that waits for it.
TEST(Mesh, SilenceIsBlamedOnTheRankThatIsSilent) {
  using Kind = SimulatedFault::Kind;
  SimulationOptions options;
  options.world.faults = {{Kind::stall, 1, 0, 1, 20}, {Kind::stall, 2, 0, 1, 25}, {Kind::silent_death, 3, 0, 1, 0}};
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    // 0 hears nothing of 1 for 20 seconds, 1 nothing of 2 for 25, 2 never anything of 3.
    const SimulatedRun run = run_simulated(seed, 4, options, [](Communicator& ranks, int rank) {
      if (rank == 3) barrier(ranks);
      exchange_with(ranks, rank + 1, 0, 5);
    });
    EXPECT_EQ(run.wrong(), "");
    EXPECT_EQ(run.ranks[3].end, SimulatedRank::End::died);
    for (const int rank : {0, 1, 2})
      EXPECT_EQ(run.ranks[static_cast<std::size_t>(rank)].message, "rank 3 on host3: no message for 30 s") << seed;
    EXPECT_GE(run.seconds, 30);
    EXPECT_LT(run.seconds, 35);
  }
}

}  // namespace
}  // namespace bantam::mesh_test
