// Shares of replicas and their aligned subtrees.
#include "bantam/engine/comm/replica_shares.h"

#include <numeric>

#include <gtest/gtest.h>

#include "tests/engine/message_of.h"

namespace bantam {
namespace {

using testing::message_of;

std::vector<int> counts_of(const std::vector<ReplicaShare>& shares) {
  std::vector<int> counts;
  int next = 0;
  for (const ReplicaShare& share : shares) {
    EXPECT_EQ(share.first, next);
    next += share.count;
    counts.push_back(share.count);
  }
  return counts;
}

TEST(ReplicaShares, EvenOnesHaveOneMoreFirst) {
  EXPECT_EQ(counts_of(even_shares(1, 1)), std::vector<int>({1}));
  EXPECT_EQ(counts_of(even_shares(4, 3)), std::vector<int>({2, 1, 1}));
  EXPECT_EQ(counts_of(even_shares(16, 6)), std::vector<int>({3, 3, 3, 3, 2, 2}));
}

TEST(ReplicaShares, SizesThatDoNotFitAreErrors) {
  EXPECT_EQ(message_of([] { even_shares(6, 2); }), "the number of replicas must be a power of two (1, 2, 4, …), not 6");
  EXPECT_EQ(message_of([] { even_shares(0, 1); }), "the number of replicas must be a power of two (1, 2, 4, …), not 0");
  EXPECT_EQ(message_of([] { even_shares(4, 0); }), "a run has at least one rank, not 0");
  EXPECT_EQ(message_of([] { even_shares(4, 5); }),
            "5 ranks for 4 replicas: each rank computes at least one whole replica; start at most 4, or set "
            "train.replicas to at least the number of ranks");
  EXPECT_EQ(message_of([] {
              shares_by_speed(2, std::vector<double>{1, 0});
            }),
            "the speed of rank 1 must be a number of replicas a second above 0, not 0.000000");
}

TEST(ReplicaShares, FollowSpeeds) {
  EXPECT_EQ(counts_of(shares_by_speed(16, std::vector<double>{5, 3})), std::vector<int>({10, 6}));
  EXPECT_EQ(counts_of(shares_by_speed(8, std::vector<double>{1, 1, 1})), std::vector<int>({3, 3, 2}));
  EXPECT_EQ(counts_of(shares_by_speed(4, std::vector<double>{1000, 1, 1})), std::vector<int>({2, 1, 1}));
  EXPECT_EQ(counts_of(shares_by_speed(4, std::vector<double>{1e308, 1e308})), std::vector<int>({2, 2}));
}

TEST(ReplicaShares, SumsAreTheLargestAlignedSubtrees) {
  EXPECT_EQ(sums_of({0, 8}), (std::vector<ReplicaSum>{{0, 3}}));
  EXPECT_EQ(sums_of({0, 10}), (std::vector<ReplicaSum>{{0, 3}, {8, 1}}));
  EXPECT_EQ(sums_of({10, 6}), (std::vector<ReplicaSum>{{10, 1}, {12, 2}}));
  EXPECT_EQ(sums_of({3, 2}), (std::vector<ReplicaSum>{{3, 0}, {4, 0}}));
  EXPECT_EQ(sums_of({1, 14}), (std::vector<ReplicaSum>{{1, 0}, {2, 1}, {4, 2}, {8, 2}, {12, 1}, {14, 0}}));
}

}  // namespace
}  // namespace bantam
