// Shares of replicas: even ones, and by largest remainders; the aligned subtrees of a share.
#include "bantam/engine/comm/replica_shares.h"

#include <bit>
#include <cmath>
#include <numeric>
#include <string>

#include "bantam/base/error.h"

namespace bantam {
namespace {

void check_sizes(int replicas, std::size_t ranks) {
  if (replicas < 1 || !std::has_single_bit(static_cast<unsigned>(replicas)))
    throw ConfigError("the number of replicas must be a power of two (1, 2, 4, …), not " + std::to_string(replicas));
  if (ranks < 1) throw ConfigError("a run has at least one rank, not 0");
  if (ranks > static_cast<std::size_t>(replicas)) {
    throw ConfigError(std::to_string(ranks) + " ranks for " + std::to_string(replicas) +
                      (replicas == 1 ? " replica" : " replicas") +
                      ": each rank computes at least one whole replica; start at most " + std::to_string(replicas) +
                      ", or set train.replicas to at least the number of ranks");
  }
}

std::vector<ReplicaShare> shares_of(const std::vector<int>& counts) {
  std::vector<ReplicaShare> shares;
  int first = 0;
  for (const int count : counts) {
    shares.push_back({first, count});
    first += count;
  }
  return shares;
}

/// The rank whose count lies furthest below its quota (of equal ones the first) or, for `above`, furthest above it,
/// among those with more than one replica.
std::size_t furthest(const std::vector<double>& quotas, const std::vector<int>& counts, bool above) {
  std::size_t best = 0;
  double most = -INFINITY;
  for (std::size_t i = 0; i < quotas.size(); ++i) {
    const double missing = quotas[i] - counts[i];
    const double distance = above ? -missing : missing;
    if ((above && counts[i] == 1) || distance <= most) continue;
    best = i;
    most = distance;
  }
  return best;
}

}  // namespace

std::vector<ReplicaShare> even_shares(int replicas, int ranks) {
  check_sizes(replicas, ranks < 0 ? 0 : static_cast<std::size_t>(ranks));
  std::vector<int> counts;
  for (int i = 0; i < ranks; ++i) counts.push_back(replicas / ranks + (i < replicas % ranks ? 1 : 0));
  return shares_of(counts);
}

std::vector<ReplicaShare> shares_by_speed(int replicas, std::span<const double> speeds) {
  check_sizes(replicas, speeds.size());
  double fastest = 0;
  for (std::size_t i = 0; i < speeds.size(); ++i) {
    if (!(speeds[i] > 0) || !std::isfinite(speeds[i])) {
      throw ConfigError("the speed of rank " + std::to_string(i) +
                        " must be a number of replicas a second above 0, not " + std::to_string(speeds[i]));
    }
    fastest = std::max(fastest, speeds[i]);
  }
  double total = 0;  // relative to the fastest: no sum overflows
  for (const double speed : speeds) total += speed / fastest;
  std::vector<double> quotas;
  std::vector<int> counts;
  for (const double speed : speeds) {
    quotas.push_back(replicas * (speed / fastest / total));
    counts.push_back(std::max(1, static_cast<int>(quotas.back())));
  }
  int dealt = std::accumulate(counts.begin(), counts.end(), 0);
  for (; dealt < replicas; ++dealt) ++counts[furthest(quotas, counts, false)];
  for (; dealt > replicas; --dealt) --counts[furthest(quotas, counts, true)];
  return shares_of(counts);
}

std::vector<ReplicaSum> sums_of(const ReplicaShare& share) {
  std::vector<ReplicaSum> sums;
  const int end = share.first + share.count;
  for (int first = share.first; first < end;) {
    int level = 0;
    while (first % (2 << level) == 0 && first + (2 << level) <= end) ++level;
    sums.push_back({first, level});
    first += 1 << level;
  }
  return sums;
}

}  // namespace bantam
