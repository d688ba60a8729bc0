// How the fused head's kernels are launched: early where that pays, as clusters where the kernel wants them.
#pragma once

#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/common/cuda/early_launch.cuh"
#include "bantam/kernels/common/cuda/libraries.h"
#include "bantam/kernels/common/cuda/shared_bytes.h"

namespace bantam::kernels::cuda {

/// Every kernel of the head that is launched early waits before it lets the next one start, and the one that is not
/// need not wait. So what a kernel reads before it waits is complete unless the kernel just before it writes it.
struct HeadLaunch {
  dim3 grid;
  int threads = 0;
  int shared_bytes = 0;  ///< beyond what the kernel declares
  int cluster = 1;       ///< neighbours in y that run side by side
  bool early = false;    ///< every thread of the kernel calls wait_for_kernel_before
};

/// A HeadLaunch in the form of the CUDA runtime.
struct HeadLaunchConfig {
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config{};

  HeadLaunchConfig(const Exec& exec, const HeadLaunch& how) {
    config.gridDim = how.grid;
    config.blockDim = dim3(static_cast<unsigned>(how.threads));
    config.dynamicSmemBytes = static_cast<std::size_t>(how.shared_bytes);
    config.stream = stream_of(exec);
    config.attrs = attributes;
    if (how.early && starts_early(exec)) {
      auto& early = attributes[config.numAttrs++];
      early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      early.val.programmaticStreamSerializationAllowed = 1;
    }
    if (how.cluster > 1) {
      auto& cluster = attributes[config.numAttrs++];
      cluster.id = cudaLaunchAttributeClusterDimension;
      cluster.val.clusterDim = {1, static_cast<unsigned>(how.cluster), 1};
    }
  }
  HeadLaunchConfig(const HeadLaunchConfig&) = delete;  // config points to attributes
  HeadLaunchConfig& operator=(const HeadLaunchConfig&) = delete;
};

/// Whether the device can run the kernel as clusters of that size: code for 9.0 or later, shared memory, and room for
/// all blocks of a cluster side by side.
template <class... Parameters>
bool holds_cluster(const Exec& exec, void (*kernel)(Parameters...), const HeadLaunch& how) {
  KernelLimits& limits = Libraries::of(exec).kernel_limits();
  if (!starts_early(exec) || limits.block_shared_bytes() < how.shared_bytes) return false;
  allow_shared_bytes(exec, kernel, how.shared_bytes);
  return limits.holds_cluster(reinterpret_cast<const void*>(kernel), HeadLaunchConfig(exec, how).config);
}

template <class... Parameters, class... Arguments>
void launch_head_kernel(const Exec& exec, void (*kernel)(Parameters...), const HeadLaunch& how,
                        const Arguments&... arguments) {
  allow_shared_bytes(exec, kernel, how.shared_bytes);
  const HeadLaunchConfig launch(exec, how);
  check_cuda(cudaLaunchKernelEx(&launch.config, kernel, static_cast<Parameters>(arguments)...), "cudaLaunchKernelEx");
}

}  // namespace bantam::kernels::cuda
