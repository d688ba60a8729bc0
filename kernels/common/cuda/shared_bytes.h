// Shared memory beyond what a launch gets without asking.
#pragma once

#include <cstdint>

#include "bantam/kernels/common/cuda/libraries.h"

namespace bantam::kernels::cuda {

/// The shared memory, declared plus dynamic, that a block may use without asking CUDA for more.
inline constexpr std::int64_t kUnaskedSharedBytes = 48 * 1024;

/// Before a launch of `kernel` with `bytes` of dynamic shared memory; what it declares counts, too, so even a little
/// more may have to be asked for. Throws CudaError.
template <class Kernel>
void allow_shared_bytes(const Exec& exec, Kernel* kernel, std::int64_t bytes) {
  if (bytes > 0) Libraries::of(exec).kernel_limits().allow_shared_bytes(reinterpret_cast<const void*>(kernel));
}

}  // namespace bantam::kernels::cuda
