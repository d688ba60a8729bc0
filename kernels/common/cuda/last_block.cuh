// How a block detects that it is the last of its grid, to finish what the others began.
#pragma once

namespace bantam::kernels::cuda {

/// Whether this is the last of `arrivals` at `counter`, which is 0 before and after; it then sees what came before the
/// others. One instruction that releases and acquires: fences on both sides of a relaxed one are slower.
__device__ inline bool arrives_last(unsigned* counter, unsigned arrivals) {
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"  // wraps around to 0
               : "=r"(before)
               : "l"(counter), "r"(arrivals - 1)
               : "memory");
  return before == arrivals - 1;
}

/// For one thread of each block: whether its block is the last of the (one-dimensional) grid to come here; it then sees
/// what those threads wrote before. `counter` (block_counters.h) is 0 before the kernel and after it.
__device__ inline bool counted_last(unsigned* counter) { return arrives_last(counter, gridDim.x); }

/// The same for all threads of a block at once, and all that they wrote.
__device__ inline bool last_of_grid(unsigned* counter) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) last = counted_last(counter);  // after the barrier, it speaks for the whole block
  __syncthreads();
  return last;
}

}  // namespace bantam::kernels::cuda
