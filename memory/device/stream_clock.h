// StreamClock: when a stream's work came to a place, by the device's own clock.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bantam/memory/device/device.h"

namespace bantam {

/// Marks in a stream's work. On CUDA a mark is a timed event, which the device passes without waiting; on the CPU it is
/// a reading of the host's clock. A mark within recorded work (CapturedWork) is passed at each replay, and its time is
/// the last one's. Used by one thread; the stream must outlive it.
class StreamClock {
 public:
  explicit StreamClock(Stream stream) : stream_(stream) {}
  ~StreamClock();
  StreamClock(const StreamClock&) = delete;
  StreamClock& operator=(const StreamClock&) = delete;

  /// Marks the place after the stream's work so far; returns the mark's number: 0, 1, …
  std::int64_t mark();
  /// Nanoseconds of every mark: on the CPU of the steady clock, on CUDA since the first mark (each to half a
  /// microsecond). Waits for the stream. Every mark must have been passed: those within recorded work were replayed.
  std::vector<std::int64_t> times() const;
  /// Seconds from one mark to another; nothing where one of them has not been passed. Waits for the stream.
  std::optional<double> seconds_between(std::int64_t begin, std::int64_t end) const;
  std::int64_t marks() const { return static_cast<std::int64_t>(host_.size() + events_.size()); }

 private:
  Stream stream_;
  std::vector<std::int64_t> host_;  // CPU
  std::vector<void*> events_;       // CUDA
};

}  // namespace bantam
