// How the last block of a grid knows that it is the last, and may finish what the others began.
#pragma once

namespace bantam::kernels::cuda {

/// For one thread of each block: whether its block is the last of the (one-dimensional) grid to come here; it then sees
/// what those threads wrote before. `counter` (block_counters.h) is 0 before the kernel and after it.
__device__ inline bool counted_last(unsigned* counter) {
  __threadfence();
  const bool last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;  // wraps around to 0
  __threadfence();
  return last;
}

/// The same for all threads of a block at once, and all that they wrote.
__device__ inline bool last_of_grid(unsigned* counter) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) last = counted_last(counter);  // behind the barrier, it speaks for the whole block
  __syncthreads();
  return last;
}

}  // namespace bantam::kernels::cuda
