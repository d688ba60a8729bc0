// Activations on CUDA: one kernel a direction and type.
#include "bantam/kernels/common/cuda/vectorized.cuh"
#include "bantam/kernels/elementwise/activation.h"
#include "bantam/kernels/elementwise/cuda/activation_functions.cuh"

namespace bantam::kernels::cuda {

void activation_forward(const Exec& exec, Activation activation, float slope, std::int64_t count, DType dtype,
                        const void* x, void* y) {
  launch_map(exec, count, dtype, x, y, ActivationValues{activation, slope});
}

void activation_grad(const Exec& exec, Activation activation, float slope, std::int64_t count, DType dtype,
                     const void* saved, const void* dy, void* dx) {
  launch_map(exec, count, dtype, saved, dy, dx, ActivationSlopes{activation, slope});
}

}  // namespace bantam::kernels::cuda
