// NormSync: how batch norms whose statistics are those of all ranks' batches add up what each rank has.
#pragma once

#include "bantam/engine/autograd/context.h"

namespace bantam {

/// Ranks call it alike: norm by norm, in the order of forward, then of backward. Used by one thread.
class NormSync {
 public:
  virtual ~NormSync() = default;
  /// values = their sums over all ranks, in the order of the replicas' tree, the same bits on every rank. `values`:
  /// (elements), float32 or float64, contiguous. In order of context.stream. Throws CommunicationError.
  virtual void sum(const Context& context, const Tensor& values) = 0;
};

}  // namespace bantam
