// Shared memory beyond what a launch gets without asking.
#pragma once

#include <cstdint>

#include "bantam/kernels/cuda/check.h"

namespace bantam::kernels::cuda {

inline constexpr std::int64_t kUnaskedSharedBytes = 48 * 1024;

/// For a launch of `kernel` with `bytes` of dynamic shared memory. Throws CudaError.
template <class Kernel>
void allow_shared_bytes(Kernel* kernel, std::int64_t bytes) {
  if (bytes <= kUnaskedSharedBytes) return;
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(bytes)),
             "cudaFuncSetAttribute");
}

}  // namespace bantam::kernels::cuda
