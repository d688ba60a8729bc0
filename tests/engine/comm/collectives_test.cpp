// Broadcast, gather and barrier among threads and simulated ranks.
#include "bantam/engine/comm/collectives.h"

#include <atomic>
#include <cstring>

#include <gtest/gtest.h>

#include "bantam/engine/comm/simulator.h"
#include "tests/engine/comm/on_ranks.h"

namespace bantam::collectives_test {
namespace {

using testing::nothing_thrown;
using testing::on_ranks;

/// Each collective, with values that tell who sent them; small ones, large ones and none.
void all_collectives(Communicator& ranks, int rank) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{70'000}}) {
    const int root = ranks.size() - 1;
    std::vector<std::byte> bytes(size, static_cast<std::byte>(rank));
    broadcast(ranks, bytes, root);
    EXPECT_EQ(bytes, std::vector<std::byte>(size, static_cast<std::byte>(root)));
    const std::vector<std::byte> mine(size, static_cast<std::byte>(rank + 1));
    const auto all = all_gather(ranks, mine);
    ASSERT_EQ(all.size(), static_cast<std::size_t>(ranks.size()));
    for (std::size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(all[i], std::vector<std::byte>(size, static_cast<std::byte>(i + 1)));
    const std::string text(size, 'a');
    EXPECT_EQ(broadcast_text(ranks, rank == 0 ? text + "!" : "mine"), text + "!");
  }
  const auto texts = all_gather_texts(ranks, std::string(static_cast<std::size_t>(rank * 3000), 'x'));
  for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], std::string(i * 3000, 'x'));
}

TEST(Collectives, AmongThreads) {
  for (const int ranks : {1, 2, 3, 8})
    EXPECT_EQ(on_ranks(ranks, all_collectives, {}, 1000), nothing_thrown(ranks)) << ranks;
}

TEST(Collectives, AmongSimulatedRanks) {
  for (const int ranks : {1, 2, 5}) {
    const SimulatedRun run = run_simulated(1, ranks, {}, all_collectives);
    EXPECT_EQ(run.wrong(), "");
    EXPECT_TRUE(run.all_done());
  }
}

TEST(Collectives, NobodyPassesABarrierBeforeAllHaveCome) {
  std::atomic<int> came = 0;
  const auto thrown = on_ranks(4, [&](Mesh& mesh, int) {
    for (int round = 1; round <= 20; ++round) {
      ++came;
      barrier(mesh);
      EXPECT_GE(came, 4 * round);
      barrier(mesh);
    }
  });
  EXPECT_EQ(thrown, nothing_thrown(4));
}

TEST(Collectives, ABroadcastComesFromARankThatExists) {
  const auto thrown = on_ranks(1, [](Mesh& mesh, int) { broadcast(mesh, {}, 1); });
  EXPECT_EQ(thrown, std::vector<std::string>{"a broadcast comes from rank 0 to 0, not from rank 1"});
}

}  // namespace
}  // namespace bantam::collectives_test
