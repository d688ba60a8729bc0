// The tree finished among ranks has the bits of the tree in sequence, however replicas are dealt.
#include "bantam/engine/comm/tree_exchange.h"

#include <cstring>

#include <gtest/gtest.h>

#include "bantam/engine/comm/simulator.h"
#include "tests/engine/comm/on_ranks.h"
#include "tests/engine/comm/tree_sums.h"
#include "tests/engine/message_of.h"

namespace bantam::tree_exchange_test {
namespace {

using testing::message_of;
using testing::nothing_thrown;
using testing::on_ranks;
using testing::random_shares;
using testing::RankPlane;
using testing::replica_values;
using testing::tree_sum;

/// Replicas, how they are dealt, and what is exchanged: planes as training has them, gradients of both types.
struct Trial {
  int replicas = 1;
  std::vector<ReplicaShare> shares;
  std::size_t gradients = 0, statistics = 0, metrics = 0, narrow = 0;
  TreeExchangeOptions options;
  bool in_place = false;
  std::vector<float> gradient_root, statistic_root;
  std::vector<double> metric_root;
  std::vector<Half> narrow_root;

  Trial(int count, int ranks, std::mt19937_64& random)
      : replicas(count),
        shares(random_shares(count, ranks, random)),
        gradients(random() % 3000),
        statistics(random() % 40),
        metrics(random() % 5),
        narrow(random() % 3000),
        options{64u << (random() % 6)},
        in_place(random() % 2 == 0) {
    int level = 0;
    while ((1 << level) < replicas) ++level;
    gradient_root = tree_sum<float>(1, {0, level}, gradients);
    statistic_root = tree_sum<float>(2, {0, level}, statistics);
    metric_root = tree_sum<double>(3, {0, level}, metrics);
    narrow_root = tree_sum<Half>(4, {0, level}, narrow);
  }

  template <class T>
  static bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
  }

  void operator()(Communicator& ranks, int rank) const {
    const ReplicaShare& share = shares[static_cast<std::size_t>(rank)];
    const RankPlane<float> a(1, share, gradients, in_place), b(2, share, statistics, in_place);
    const RankPlane<double> c(3, share, metrics, in_place);
    const RankPlane<Half> d(4, share, narrow, in_place);
    TreeExchange exchange(ranks, replicas, shares, options);
    std::vector<std::byte> workspace(exchange.workspace_bytes());
    const TreePlane planes[] = {a.plane, b.plane, c.plane, d.plane};
    exchange.run(planes, workspace);
    EXPECT_TRUE(same_bits(a.result(), gradient_root)) << name(rank);
    EXPECT_TRUE(same_bits(b.result(), statistic_root)) << name(rank);
    EXPECT_TRUE(same_bits(c.result(), metric_root)) << name(rank);
    EXPECT_TRUE(same_bits(d.result(), narrow_root)) << name(rank);
  }
  std::string name(int rank) const {
    std::string text = "rank " + std::to_string(rank) + ", replicas";
    for (const ReplicaShare& share : shares) text += " " + std::to_string(share.count);
    return text + ", " + std::to_string(gradients) + " elements";
  }
};

TEST(TreeExchange, EveryDealOfUpToSixteenReplicasHasTheSameBits) {
  std::mt19937_64 random(7);
  for (const int replicas : {1, 2, 4, 8, 16}) {
    for (int ranks = 1; ranks <= replicas; ++ranks) {
      const Trial trial(replicas, ranks, random);
      EXPECT_EQ(on_ranks(ranks, trial), nothing_thrown(ranks));
      const SimulatedRun run = run_simulated(static_cast<std::uint64_t>(ranks), ranks, {}, trial);
      EXPECT_EQ(run.wrong(), "");
      EXPECT_TRUE(run.all_done());
    }
  }
}

TEST(TreeExchange, OrderOfAdditionsShowsInTheBits) {
  std::vector<float> left_to_right = tree_sum<float>(1, {0, 0}, 1000);
  for (int replica = 1; replica < 4; ++replica) {
    const auto next = tree_sum<float>(1, {replica, 0}, 1000);
    for (std::size_t i = 0; i < next.size(); ++i) left_to_right[i] += next[i];
  }
  EXPECT_NE(left_to_right, tree_sum<float>(1, {0, 2}, 1000));
}

TEST(TreeExchange, OrderOfAdditionsShowsInFloat16) {
  std::vector<Half> left_to_right = tree_sum<Half>(4, {0, 0}, 1000);
  const std::vector<Half> tree = tree_sum<Half>(4, {0, 2}, 1000);
  std::size_t others = 0;
  for (std::size_t i = 0; i < tree.size(); ++i) {
    for (int replica = 1; replica < 4; ++replica)
      left_to_right[i] = Half(left_to_right[i] + replica_values<Half>(4, replica, 1000)[i]);
    EXPECT_TRUE(std::isfinite(static_cast<float>(tree[i])));
    others += tree[i].bits != left_to_right[i].bits ? 1 : 0;
  }
  EXPECT_GT(others, 100u);
}

TEST(TreeExchange, LargePlanesTravelInPiecesOfTheUsualSize) {
  const int ranks = 3;
  const std::size_t elements = 2'500'000;  // shards of 3.2 MiB
  const std::vector<ReplicaShare> shares = even_shares(4, ranks);
  const std::vector<float> root = tree_sum<float>(5, {0, 2}, elements);
  const auto thrown = on_ranks(ranks, [&](Mesh& mesh, int rank) {
    const RankPlane<float> plane(5, shares[static_cast<std::size_t>(rank)], elements, rank == 1);
    TreeExchange exchange(mesh, 4, shares);
    std::vector<std::byte> workspace(exchange.workspace_bytes());
    exchange.run(std::span(&plane.plane, 1), workspace);
    EXPECT_TRUE(plane.result() == root);
  });
  EXPECT_EQ(thrown, nothing_thrown(ranks));
}

TEST(TreeExchange, WorkspaceDoesNotGrowWithRanks) {
  EXPECT_EQ(tree_exchange_workspace(even_shares(4, 1), 0), 0u);
  EXPECT_EQ(tree_exchange_workspace(even_shares(2, 2), 0), 1u << 20);
  EXPECT_EQ(tree_exchange_workspace(even_shares(8, 3), 0), 3u << 20);  // two sums of rank 1, one of rank 2
  EXPECT_EQ(tree_exchange_workspace(even_shares(64, 64), 5), 63u * (128 << 10));
}

TEST(TreeExchange, WhatDoesNotFitIsAnError) {
  const auto made = [](int replicas, std::vector<ReplicaShare> shares) {
    return on_ranks(1, [&](Mesh& mesh, int) { TreeExchange(mesh, replicas, shares); })[0];
  };
  EXPECT_EQ(made(4, {{0, 3}}), "the shares of 1 ranks must be replicas 0 to 3, in the ranks' order");
  EXPECT_EQ(made(4, {{1, 3}}), "the shares of 1 ranks must be replicas 0 to 3, in the ranks' order");
  EXPECT_EQ(made(3, {{0, 3}}), "the number of replicas must be a power of two (1, 2, 4, …), not 3");
  const auto thrown = on_ranks(2, [](Mesh& mesh, int rank) {
    if (rank == 1) return;
    TreeExchange exchange(mesh, 2, even_shares(2, 2));
    EXPECT_EQ(message_of([&] { exchange.run({}, {}); }),
              "the exchange of replicas' sums needs 1048576 bytes of workspace, not 0");
    std::vector<std::byte> workspace(exchange.workspace_bytes());
    TreePlane plane;
    EXPECT_EQ(message_of([&] { exchange.run(std::span(&plane, 1), workspace); }),
              "rank 0 has 1 partial sums of its replicas, not 0");
    plane.type = DType::int32;
    EXPECT_EQ(message_of([&] { exchange.run(std::span(&plane, 1), workspace); }),
              "replicas' sums are float32, float64 or float16, not int32");
  });
  EXPECT_EQ(thrown, nothing_thrown(2));
}

}  // namespace
}  // namespace bantam::tree_exchange_test
