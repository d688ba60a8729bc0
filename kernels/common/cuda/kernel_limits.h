// Device limits that a kernel must opt in to: most of a multiprocessor's shared memory,
// and clusters.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>

#include <cuda_runtime_api.h>

#include "bantam/memory/device/device.h"

namespace bantam::kernels::cuda {

/// Asked once a kernel, by its host address. All calls with the device current. Thread-safe.
class KernelLimits {
 public:
  explicit KernelLimits(Device device) : device_(device) {}

  /// The most shared memory that a block may have: what its kernel declares and what its launch asks for, together.
  std::int64_t block_shared_bytes();
  /// Lets every launch of `kernel` ask for all of it. The limit belongs to the process and every caller sets the same,
  /// so that no launch of another thread or another Runtime finds it lowered. Throws CudaError.
  void allow_shared_bytes(const void* kernel);
  /// Whether the device has room for one cluster of `launch`: a slice of a GPU, or one with few multiprocessors in a
  /// group, may have none. Launches of one kernel ask for clusters of one size.
  bool holds_cluster(const void* kernel, const cudaLaunchConfig_t& launch);

 private:
  std::int64_t block_shared_bytes_locked();

  Device device_;
  std::mutex guard_;
  std::int64_t block_shared_bytes_ = 0;  ///< 0: not asked yet
  std::set<const void*> allowed_;
  std::map<const void*, bool> clusters_;
};

}  // namespace bantam::kernels::cuda
