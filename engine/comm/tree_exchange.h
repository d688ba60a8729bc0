// TreeExchange: finishes the binary tree over replicas among ranks, each of which has added its own replicas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bantam/base/dtype.h"
#include "bantam/engine/comm/communicator.h"
#include "bantam/engine/comm/replica_shares.h"

namespace bantam {

/// An array that every rank has partial sums of, in host memory.
struct TreePlane {
  DType type = DType::float32;    ///< float32, float64 or float16, to which each sum is then rounded
  std::int64_t elements = 0;      ///< the same on every rank; may be 0
  std::vector<const void*> sums;  ///< this rank's: one for each of sums_of(its share), in that order
  void* root = nullptr;  ///< receives the sum of all replicas; may be one of `sums`, overlaps them in no other way
};

struct TreeExchangeOptions {
  /// Bytes of a shard that travel at once; 0: chosen by the number of partial sums, so that workspace stays small.
  /// The same on every rank.
  std::uint64_t piece_bytes = 0;
};

/// Bytes that TreeExchange::run needs beside the planes, on `rank`: nothing for one rank, else at most about 8 MiB (for
/// more than 128 partial sums, 64 KiB each), whatever the planes' size. `shares`: those of all ranks.
std::uint64_t tree_exchange_workspace(std::span<const ReplicaShare> shares, int rank, TreeExchangeOptions options = {});

/// Each rank owns a shard of each plane: it receives the other ranks' partial sums of it, finishes the tree in order
/// (the left operand is that of the lower replicas) and sends the result to all. So every rank has the same bits, and
/// they do not depend on how replicas are dealt. A plane's bytes travel about twice, as in any all-reduce (once more
/// for each further partial sum that a rank has).
class TreeExchange {
 public:
  /// `shares`: of all ranks, in their order, which together are replicas 0 … replicas - 1. Throws ConfigError where
  /// they are not. `ranks` must outlive it.
  TreeExchange(Communicator& ranks, int replicas, std::vector<ReplicaShare> shares, TreeExchangeOptions options = {});
  ~TreeExchange();
  TreeExchange(const TreeExchange&) = delete;
  TreeExchange& operator=(const TreeExchange&) = delete;

  /// tree_exchange_workspace of this rank.
  std::uint64_t workspace_bytes() const;
  /// Every rank calls it with planes of the same types and sizes, in the same order; returns when all roots are
  /// written. `workspace`: at least workspace_bytes(), aligned to 64 bytes. Throws CommunicationError.
  void run(std::span<const TreePlane> planes, std::span<std::byte> workspace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bantam
