// Which rank computes which replicas, and which sums of the replicas' tree that makes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bantam {

/// Replicas `first` … `first + count - 1` of a run's R, a power of two.
struct ReplicaShare {
  int first = 0, count = 1;
  bool operator==(const ReplicaShare&) const = default;
};

/// Shares of `ranks` ranks, in their order, as even as they can be: the first ones have one more. Throws ConfigError
/// where replicas is no power of two, or there are more ranks than replicas.
std::vector<ReplicaShare> even_shares(int replicas, int ranks);
/// In proportion to speeds (replicas a second, one a rank), by largest remainders, at least one each. Throws as above.
std::vector<ReplicaShare> shares_by_speed(int replicas, std::span<const double> speeds);

/// A node of the binary tree over replicas: the sum of replicas first … first + 2^level - 1, first being a multiple of
/// 2^level.
struct ReplicaSum {
  int first = 0, level = 0;
  bool operator==(const ReplicaSum&) const = default;
};

/// The largest nodes that lie within a share, by first: what a rank can add up alone, and what it has to send.
std::vector<ReplicaSum> sums_of(const ReplicaShare& share);

}  // namespace bantam
