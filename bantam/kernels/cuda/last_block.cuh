// How the last block of a grid knows that it is the last, and may finish what the others began.
#pragma once

namespace bantam::kernels::cuda {

/// For all threads of a block at once: whether it is the last of its (one-dimensional) grid to come here; it then sees
/// what the others wrote before. `counter` (block_counters.h) is 0 before the kernel and after it.
__device__ inline bool last_of_grid(unsigned* counter) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();                                            // behind the barrier, it speaks for the whole block
    last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;  // wraps around to 0
    __threadfence();
  }
  __syncthreads();
  return last;
}

}  // namespace bantam::kernels::cuda
