// CUDA error checks and the stream of a call, for the host side of every CUDA kernel.
#pragma once

#include <string>

#include <cuda_runtime_api.h>

#include "bantam/base/error.h"
#include "bantam/kernels/common/exec.h"

namespace bantam::kernels::cuda {

/// Throws CudaError naming `call` unless `status` is success.
inline void check_cuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // reported here; a later launch check must not see it again
  throw CudaError(std::string(call) + " failed: " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")");
}

/// For use right after a launch: reports a launch that was refused (an error while the kernel runs comes with a later
/// call).
inline void check_launch(const char* kernel) {
  const cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess) return;
  throw CudaError("launch of CUDA kernel " + std::string(kernel) + " failed: " + cudaGetErrorString(status) + " (" +
                  cudaGetErrorName(status) + ")");
}

/// The CUDA stream a kernel call runs on.
inline cudaStream_t stream_of(const Exec& exec) { return static_cast<cudaStream_t>(exec.stream.handle); }

}  // namespace bantam::kernels::cuda
