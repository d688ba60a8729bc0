// DeviceBatches: batches that lie on the device or are made there without the host, for steps recorded once and run
// often.
#pragma once

#include <cstdint>

#include "bantam/engine/step/batch_source.h"

namespace bantam {

/// Consecutive batches of equal shapes. A launch uses the next `count` of them: `make` enqueues the work that makes
/// them, directly or into a recording that is replayed; `advance` says that so many have been made. Used by one thread.
class DeviceBatches {
 public:
  virtual ~DeviceBatches() = default;
  /// How many are left.
  virtual std::int64_t left() const = 0;
  /// Most that one launch can use.
  virtual std::int64_t most_at_once() const = 0;
  /// Batch `i` of the next `count`; called for i = 0 … count - 1 in order, and each batch is done with before the next
  /// is asked for. Neither waits nor allocates. What is enqueued finds its place in the epoch on the device, and moves
  /// it on.
  virtual Batch make(const Context& context, std::int64_t i, std::int64_t count) = 0;
  /// `count` batches have been made since: by calls of `make`, or by running a recording of them.
  virtual void advance(std::int64_t count) = 0;
};

}  // namespace bantam
