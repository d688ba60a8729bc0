// A binary tree over replicas, as its definition says: the oracle of the tests.
#pragma once

#include <cstddef>
#include <vector>

namespace bantam::kernels::reference {

/// The node of `level` whose lowest replica is `first`: the sum of its two halves, the lower one left. `leaves`: one
/// array a replica, of equal sizes.
template <class T>
std::vector<T> tree_node(const std::vector<std::vector<T>>& leaves, int level, std::size_t first) {
  if (level == 0) return leaves[first];
  std::vector<T> left = tree_node(leaves, level - 1, first);
  const std::vector<T> right = tree_node(leaves, level - 1, first + (std::size_t{1} << (level - 1)));
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = left[i] + right[i];
  return left;
}

}  // namespace bantam::kernels::reference
