// Kernels that start while the kernel before them ends (programmatic dependent launch): they load what that one does
// not write, then wait for it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/common/cuda/libraries.h"
#include "bantam/kernels/common/cuda/shared_bytes.h"

namespace bantam::kernels::cuda {

/// Waits until the kernel before has ended and all it wrote can be read. Every thread of a kernel launched early calls
/// it before it reads or writes what that kernel does. No more than a fence of the compiler where nothing is under way.
__device__ inline void wait_for_kernel_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Lets the next kernel, where it is launched early, begin as soon as there is room for its blocks.
__device__ inline void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Whether the code that the call's device runs waits: code made for 9.0 or later.
inline bool starts_early(const Exec& exec) { return Libraries::of(exec).code_architecture() >= 900; }

/// The usual beginning of a kernel launched early, once it has set up what depends on no memory.
__device__ inline void wait_then_let_next_start() {
  wait_for_kernel_before();
  let_next_kernel_start();
}

/// Launches a kernel of which every thread calls wait_for_kernel_before, early where the device can.
///
/// Each such kernel waits before it lets the next one start. So a kernel's wait ends when all before it on the stream
/// have ended; and while it has not waited yet, the kernel before it may be running, but all before that one have ended
/// (that one has waited, or was launched in the plain way, which is as good). Hence:
/// - it writes nothing before it waits: others may still read what lies there;
/// - before it waits it reads only what the kernel before it cannot write, so that kernel must be known:
///   of the same call, or `begin_update` for `apply_update`. Such reads go past the first-level cache where the
///   step writes what they read (__ldcg, cp.async.cg);
/// - any other kernel computes indices, clears shared memory or reads tables that only copies write, then waits.
/// One kernel, merge_parts_kernel (row_sums.cuh), lets the next start first: with it, that one and the sums before it
/// may be running, which were launched in the plain way, or have waited, and write their parts, and dz or dx, only.
/// Where nothing was launched early, both functions do nothing.
template <class... Parameters, class... Arguments>
void launch_early_with_shared(const Exec& exec, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                              std::size_t shared_bytes, const Arguments&... arguments) {
  allow_shared_bytes(exec, kernel, static_cast<std::int64_t>(shared_bytes));
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream_of(exec);
  config.attrs = &early;
  config.numAttrs = starts_early(exec) ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), "cudaLaunchKernelEx");
}

/// The same for a kernel that asks for no shared memory at launch.
template <class... Parameters, class... Arguments>
void launch_early(const Exec& exec, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                  const Arguments&... arguments) {
  launch_early_with_shared(exec, kernel, grid, block, 0, arguments...);
}

/// Shared memory, at least `needed` bytes, with which a multiprocessor runs no more of `blocks` than an even share, or
/// two. For kernels without shared memory of a fixed size.
inline int spreading_bytes(const Exec& exec, std::int64_t blocks, int needed) {
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    check_cuda(cudaDeviceGetAttribute(&value, which, exec.device.index), "cudaDeviceGetAttribute");
    return value;
  };
  const std::int64_t multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
  const std::int64_t share = std::max<std::int64_t>((blocks + multiprocessors - 1) / multiprocessors, 2);
  const std::int64_t bytes = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) / share -
                             attribute(cudaDevAttrReservedSharedMemoryPerBlock);
  return std::max(needed, static_cast<int>(std::min<std::int64_t>(
                              bytes / 128 * 128, Libraries::of(exec).kernel_limits().block_shared_bytes())));
}

/// Launches early, and spreads the blocks evenly: else they crowd on the multiprocessors that the kernel before frees
/// first, and all wait for the fullest.
template <class... Parameters, class... Arguments>
void launch_spread(const Exec& exec, void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
                   const Arguments&... arguments) {
  int bytes = static_cast<int>(shared_bytes);
  if (starts_early(exec)) bytes = spreading_bytes(exec, std::int64_t{grid.x} * grid.y * grid.z, bytes);
  launch_early_with_shared(exec, kernel, grid, block, static_cast<std::size_t>(bytes), arguments...);
}

}  // namespace bantam::kernels::cuda
