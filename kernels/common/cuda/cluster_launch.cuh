// Launches of kernels as thread block clusters, early where the device can.
#pragma once

#include "bantam/kernels/common/cuda/early_launch.cuh"

namespace bantam::kernels::cuda {

/// A launch of `kernel`, every thread of which calls wait_for_kernel_before (early_launch.cuh), as clusters of
/// `cluster` neighbours in x.
template <class... Parameters>
class ClusterLaunch {
 public:
  ClusterLaunch(const Exec& exec, void (*kernel)(Parameters...), int cluster, std::int64_t blocks, int threads,
                int shared_bytes = 0)
      : exec_(exec), kernel_(kernel) {
    config_.gridDim = dim3(static_cast<unsigned>(blocks));
    config_.blockDim = dim3(static_cast<unsigned>(threads));
    config_.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
    config_.stream = stream_of(exec);
    config_.attrs = attributes_;
    config_.numAttrs = starts_early(exec) ? 2 : 1;
    attributes_[0].id = cudaLaunchAttributeClusterDimension;
    attributes_[0].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
    attributes_[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes_[1].val.programmaticStreamSerializationAllowed = 1;
  }
  ClusterLaunch(const ClusterLaunch&) = delete;  // the configuration points to the attributes
  ClusterLaunch& operator=(const ClusterLaunch&) = delete;

  /// Whether the device has shared memory for a block and room for a cluster.
  bool fits() const {
    KernelLimits& limits = Libraries::of(exec_).kernel_limits();
    const auto bytes = static_cast<std::int64_t>(config_.dynamicSmemBytes);
    if (limits.block_shared_bytes() < bytes) return false;
    allow_shared_bytes(exec_, kernel_, bytes);
    return limits.holds_cluster(reinterpret_cast<const void*>(kernel_), config_);
  }
  /// After fits().
  template <class... Arguments>
  void start(const Arguments&... arguments) const {
    check_cuda(cudaLaunchKernelEx(&config_, kernel_, static_cast<Parameters>(arguments)...), "cudaLaunchKernelEx");
  }

 private:
  const Exec& exec_;
  void (*kernel_)(Parameters...);
  cudaLaunchAttribute attributes_[2]{};
  cudaLaunchConfig_t config_{};
};

}  // namespace bantam::kernels::cuda
