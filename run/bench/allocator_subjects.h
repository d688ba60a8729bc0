// The allocators that are measured beside each other: ours, the driver's two, and the system's two.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bantam/memory/device/device.h"
#include "bantam/run/bench/allocator_workload.h"

namespace bantam::run {

/// The measurement of one allocator with one workload.
struct AllocatorRow {
  std::string allocator;
  Device device;
  double ns_per_pair = 0;  ///< an allocation and a free: median of windows of at least 20 ms
  std::int64_t windows = 0;
  std::uint64_t peak_reserved_bytes = 0;  ///< most bytes reserved from the system, in one pass from a fresh start
  std::string error;                      ///< why there is no measurement; then the rest is 0
};

/// Measures Bantam's allocator, malloc and mmap on host memory. No page is touched.
std::vector<AllocatorRow> measure_host(const AllocatorWorkload& workload, double seconds);

/// Measures Bantam's allocator, cudaMalloc and cudaMallocAsync (with a pool that keeps what is freed) on a GPU; rows
/// with the reason where it cannot be used.
std::vector<AllocatorRow> measure_cuda(const AllocatorWorkload& workload, Device device, double seconds);

}  // namespace bantam::run
