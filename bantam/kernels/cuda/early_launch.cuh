// Kernels that start while the kernel before them ends (programmatic dependent launch): they fetch what that one does
// not write, then wait for it.
#pragma once

#include <algorithm>

#include "bantam/kernels/cuda/check.h"
#include "bantam/kernels/cuda/libraries.h"

namespace bantam::kernels::cuda {

/// Waits until the kernel before has ended and all it wrote can be read. Every thread of a kernel launched early calls
/// it before it reads or writes what that kernel does. No more than a fence of the compiler where nothing is under way.
__device__ inline void wait_for_kernel_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Lets the kernel behind, where it is launched early, begin as soon as there is room for its blocks.
__device__ inline void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Whether the code that a device of `capability` runs waits: code made for 9.0 or later, and not a later device's.
inline bool starts_early(int capability) {
  constexpr int kArchitectures[] = {__CUDA_ARCH_LIST__};
  return std::ranges::any_of(kArchitectures, [&](int a) { return a >= 900 && a <= capability; });
}

/// Launches a kernel that calls wait_for_kernel_before, early where the device can. What it reads before that is
/// complete where the kernel before it on the stream is of the same call and was launched in the plain way: that one
/// waited for all before it.
template <class... Parameters, class... Arguments>
void launch_early(const Exec& exec, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                  const Arguments&... arguments) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = stream_of(exec);
  config.attrs = &early;
  config.numAttrs = starts_early(Libraries::of(exec).compute_capability()) ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), "cudaLaunchKernelEx");
}

}  // namespace bantam::kernels::cuda
