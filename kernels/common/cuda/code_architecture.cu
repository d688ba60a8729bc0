// Asks the driver about a kernel that does nothing; all are compiled for the same list of architectures, but the
// wgmma kernels, which ask for what they need themselves.
#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/common/cuda/code_architecture.h"

namespace bantam::kernels::cuda {
namespace {

__global__ void do_nothing() {}

}  // namespace

int code_architecture() {
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&do_nothing)), "cudaFuncGetAttributes");
  return attributes.ptxVersion * 10;
}

}  // namespace bantam::kernels::cuda
