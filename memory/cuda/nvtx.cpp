// Ranges for Nsight and other tools that attach through NVTX; without one a range costs two calls that return at once.
#include "bantam/memory/device/cuda_backend.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace bantam::cuda_backend {

void range_push(const char* name) noexcept { (void)nvtxRangePushA(name); }
void range_pop() noexcept { (void)nvtxRangePop(); }

}  // namespace bantam::cuda_backend

#else  // a toolkit without its headers

namespace bantam::cuda_backend {

void range_push(const char*) noexcept {}
void range_pop() noexcept {}

}  // namespace bantam::cuda_backend

#endif
