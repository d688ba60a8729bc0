// Sequences of requests that allocators are measured on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bantam/packing/planner.h"

namespace bantam::run {

/// Allocates `bytes` and keeps the address in a slot; 0 bytes: frees what is in the slot.
struct AllocatorCall {
  std::uint32_t slot = 0;
  std::uint64_t bytes = 0;
};

/// At the end nothing is live, so that the calls can be repeated.
struct AllocatorWorkload {
  std::string name;
  std::vector<AllocatorCall> calls;
  std::size_t slots = 0;
  std::uint64_t allocations = 0;
  std::uint64_t peak_live_bytes = 0;  ///< most requested bytes alive at one time
};

/// One allocation of 1 MiB and its free.
AllocatorWorkload pair_workload();
/// 512 live allocations of 256 B to 4 MiB (the logarithm is uniform); at random one goes and another comes.
AllocatorWorkload mixed_workload();
/// The buffers of one training step of ResNet-50 (batch 64, mixed_float16), as the meta device allocates them.
AllocatorWorkload step_workload();
/// Buffers in the order of their lifetimes (half-open: what ends at a time is freed before what begins at it). Those of
/// no size are left out.
AllocatorWorkload trace_workload(const std::string& name, std::span<const PlannerBuffer> buffers);

}  // namespace bantam::run
