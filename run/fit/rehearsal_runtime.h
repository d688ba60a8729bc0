// The runtime in which a run, an evaluation or a prediction is rehearsed, and the reservation of what that came to.
#pragma once

#include <cstdint>

#include "bantam/engine/runtime/runtime.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run {

/// A runtime with the meta device that stands in for a configuration's; a share's stand-in is a share, too. Its limit
/// is the pool: with `pool_bytes` 0 there is neither.
class RehearsalRuntime {
 public:
  RehearsalRuntime(const RunConfig& config, std::uint64_t pool_bytes);

  Runtime& runtime() { return runtime_; }
  Device device() const { return device_; }
  MemoryStats stats() { return runtime_.allocator(device_).stats(); }

 private:
  Device device_;
  Runtime runtime_;
};

/// Reserves so many bytes of the configuration's device; where memory.growth allows more, a pool that may grow.
void reserve_planned(Runtime& runtime, const RunConfig& config, std::uint64_t pool_bytes);

}  // namespace bantam::run
