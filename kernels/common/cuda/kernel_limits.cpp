// Asks the driver for a kernel's limits, and keeps what it said.
#include "bantam/kernels/common/cuda/kernel_limits.h"

#include <algorithm>

#include "bantam/kernels/common/cuda/check.h"

namespace bantam::kernels::cuda {

std::int64_t KernelLimits::block_shared_bytes() {
  const std::lock_guard lock(guard_);
  return block_shared_bytes_locked();
}

std::int64_t KernelLimits::block_shared_bytes_locked() {
  if (block_shared_bytes_ == 0) {
    int bytes = 0;
    check_cuda(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device_.index),
               "cudaDeviceGetAttribute");
#if defined(BANTAM_BLOCK_SHARED_KIB)  // a test build's stand-in for a device with less (scripts/build_as.sh)
    bytes = std::min(bytes, BANTAM_BLOCK_SHARED_KIB * 1024);
#endif
    block_shared_bytes_ = bytes;
  }
  return block_shared_bytes_;
}

void KernelLimits::allow_shared_bytes(const void* kernel) {
  const std::lock_guard lock(guard_);
  if (allowed_.contains(kernel)) return;
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  const std::int64_t bytes = block_shared_bytes_locked() - static_cast<std::int64_t>(attributes.sharedSizeBytes);
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
             "cudaFuncSetAttribute");
  allowed_.insert(kernel);
}

bool KernelLimits::holds_cluster(const void* kernel, const cudaLaunchConfig_t& launch) {
  const std::lock_guard lock(guard_);
  const auto [entry, is_new] = clusters_.try_emplace(kernel, false);
  if (is_new) {
    int clusters = 0;
    entry->second = cudaOccupancyMaxActiveClusters(&clusters, kernel, &launch) == cudaSuccess && clusters > 0;
    (void)cudaGetLastError();  // a size that the device refuses is an answer; the next launch must not see it
  }
  return entry->second;
}

}  // namespace bantam::kernels::cuda
