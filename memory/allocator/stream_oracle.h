// Internal: the interface by which an allocator asks about streams, so that tests can simulate streams that finish
// later.
#pragma once

#include <cstdint>
#include <memory>

#include "bantam/memory/device/device.h"

namespace bantam {

/// Marks in the work of streams. Not thread-safe: the allocator that owns it serialises calls.
class StreamOracle {
 public:
  using Mark = std::uint32_t;
  virtual ~StreamOracle() = default;
  /// Whether work of `stream` may go on after the call that submitted it returned. Other streams are never marked.
  virtual bool asynchronous(Stream stream) const = 0;
  /// Marks the end of the work submitted to `stream` so far. The mark stays in use until it is recycled.
  virtual Mark record(Stream stream) = 0;
  /// Whether the work before the mark is done.
  virtual bool done(Mark mark) = 0;
  /// Makes later work of `stream` (asynchronous) wait for the mark; the host goes on.
  virtual void make_wait(Mark mark, Stream stream) = 0;
  /// Blocks the host until the work before the mark is done.
  virtual void synchronize(Mark mark) = 0;
  /// The mark is not needed any more.
  virtual void recycle(Mark mark) noexcept = 0;
};

/// CUDA streams by pooled events; all others are synchronous.
std::unique_ptr<StreamOracle> make_device_oracle();

}  // namespace bantam
