// Adds up partial sums in a kernel of its own, where no other kernel does so.
#include "bantam/kernels/common/cuda/early_launch.cuh"
#include "bantam/kernels/update/cuda/partial_sums.cuh"

namespace bantam::kernels::cuda {
namespace {

__global__ void __launch_bounds__(kPartSumThreads) add_up_parts_kernel(const __grid_constant__ PartialSums partial) {
  wait_then_let_next_start();
  (void)make_share(partial, static_cast<int>(blockIdx.x));
}

}  // namespace

void add_up_parts(const Exec& exec, const PartialSums& partial) {
  const int shares = shares_of(partial);
  if (shares == 0) return;
  launch_early(exec, add_up_parts_kernel, dim3(static_cast<unsigned>(shares)), dim3(kPartSumThreads), partial);
}

}  // namespace bantam::kernels::cuda
