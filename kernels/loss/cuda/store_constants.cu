// Constants of a loss as arguments of launches, a block of them each: nothing on the host has to outlive the call.
#include <algorithm>

#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/loss/loss_outputs.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kConstants = 512;  // 2 KiB of the 4 that arguments may have

struct Constants {
  float values[kConstants];
};

__global__ void __launch_bounds__(kConstants) store_constants_kernel(Constants constants, int count, float* to) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < count) to[i] = constants.values[i];
}

}  // namespace

void store_constants(const Exec& exec, const float* values, std::int64_t count, float* to) {
  for (std::int64_t first = 0; first < count; first += kConstants) {
    const int now = static_cast<int>(std::min<std::int64_t>(kConstants, count - first));
    Constants constants{};
    std::copy_n(values + first, now, constants.values);
    store_constants_kernel<<<1, kConstants, 0, stream_of(exec)>>>(constants, now, to + first);
    check_launch("store_constants_kernel");
  }
}

}  // namespace bantam::kernels::cuda
