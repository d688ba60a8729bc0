// Shares of replicas and their aligned subtrees.
#include "bantam/engine/comm/replica_shares.h"

#include <numeric>

#include <gtest/gtest.h>

#include "bantam/engine/comm/span_shares.h"
#include "tests/engine/message_of.h"

namespace bantam::replica_shares_test {
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

TEST(SpanShares, AreWholeLinesAndTheirPieces) {
  using Part = SpanPart<std::int64_t>;
  const auto expect = [](const Part& found, std::int64_t begin, std::int64_t size) {
    EXPECT_EQ(found.begin, begin);
    EXPECT_EQ(found.size, size);
  };
  // 100 in lines of 16 are 7 lines, the last one of 4: 2, 2 and 3 of them.
  const auto share = [](int rank) { return share_of_span<std::int64_t>(100, 16, rank, 3); };
  expect(share(0), 0, 32);
  expect(share(1), 32, 32);
  expect(share(2), 64, 36);
  expect(piece_of_share<std::int64_t>(share(2), 20, 0), 64, 20);
  expect(piece_of_share<std::int64_t>(share(2), 20, 1), 84, 16);
  expect(piece_of_share<std::int64_t>(share(2), 20, 2), 100, 0);
  expect(share_of_span<std::int64_t>(5, 16, 0, 2), 0, 0);  // one line: the last rank has it
  expect(share_of_span<std::int64_t>(5, 16, 1, 2), 0, 5);
  expect(share_of_span<std::int64_t>(0, 16, 1, 2), 0, 0);
  for (const std::uint64_t size : {1u, 255u, 256u, 257u, 100'000u}) {
    std::uint64_t next = 0;
    for (int rank = 0; rank < 7; ++rank) {
      const SpanPart<std::uint64_t> part = share_of_span<std::uint64_t>(size, 256, rank, 7);
      EXPECT_EQ(part.begin, next);
      next += part.size;
    }
    EXPECT_EQ(next, size);
  }
}

}  // namespace
}  // namespace bantam::replica_shares_test
