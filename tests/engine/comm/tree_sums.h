// Values of replicas, their tree in sequence, and the exchange of it among ranks.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "bantam/engine/comm/tree_exchange.h"

namespace bantam::testing {

/// Value i of a replica: of very different sizes, so that the order of additions shows in the bits. Sums of some of
/// float16 are far from infinity.
template <class T>
std::vector<T> replica_values(std::uint64_t seed, int replica, std::size_t elements) {
  std::mt19937_64 random(seed * 1000 + static_cast<std::uint64_t>(replica));
  std::vector<T> values(elements);
  for (T& value : values) {
    const double mantissa = static_cast<double>(random() % 2001) - 1000;
    if constexpr (sizeof(T) == 2)
      value = T(static_cast<float>(std::ldexp(mantissa, static_cast<int>(random() % 12) - 8) / 3));
    else
      value = static_cast<T>(std::ldexp(mantissa, static_cast<int>(random() % 24)) / 3);
  }
  return values;
}

/// The sum of replicas first … first + 2^level - 1, as the definition says.
template <class T>
std::vector<T> tree_sum(std::uint64_t seed, const ReplicaSum& sum, std::size_t elements) {
  if (sum.level == 0) return replica_values<T>(seed, sum.first, elements);
  std::vector<T> left = tree_sum<T>(seed, {sum.first, sum.level - 1}, elements);
  const std::vector<T> right = tree_sum<T>(seed, {sum.first + (1 << (sum.level - 1)), sum.level - 1}, elements);
  for (std::size_t i = 0; i < elements; ++i) left[i] = static_cast<T>(left[i] + right[i]);
  return left;
}

/// A plane of one rank, its partial sums filled.
template <class T>
struct RankPlane {
  std::vector<std::vector<T>> sums;
  std::vector<T> root;
  TreePlane plane;
  RankPlane(std::uint64_t seed, const ReplicaShare& share, std::size_t elements, bool in_place)
      : root(elements, T(-1.0f)) {
    plane = {DTypeOf<T>::value, static_cast<std::int64_t>(elements), {}, root.data()};
    for (const ReplicaSum& sum : sums_of(share)) sums.push_back(tree_sum<T>(seed, sum, elements));
    for (const auto& sum : sums) plane.sums.push_back(sum.data());
    if (in_place) plane.root = sums.back().data();
  }
  RankPlane(const RankPlane&) = delete;
  RankPlane& operator=(const RankPlane&) = delete;
  /// The root, wherever it was written.
  const std::vector<T>& result() const { return plane.root == root.data() ? root : sums.back(); }
};

/// Shares of any sizes.
inline std::vector<ReplicaShare> random_shares(int replicas, int ranks, std::mt19937_64& random) {
  std::vector<ReplicaShare> shares;
  int first = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const int most = replicas - first - (ranks - rank - 1);
    const int count = rank == ranks - 1 ? most : 1 + static_cast<int>(random() % static_cast<std::uint64_t>(most));
    shares.push_back({first, count});
    first += count;
  }
  return shares;
}

}  // namespace bantam::testing
