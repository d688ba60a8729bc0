// Bias and activation: how much scratch memory their gradient needs.
#include "bantam/kernels/elementwise/bias_activation.h"

#include "bantam/kernels/common/partial_sums.h"

namespace bantam::kernels {

/// The parts' sums: floats on CUDA, doubles on the CPU.
std::size_t bias_activation_grad_workspace_bytes(const BiasShape& shape, DeviceKind target) {
  if (shape.rows <= 0 || shape.channels <= 0) return 0;
  if (target == DeviceKind::cuda)
    return static_cast<std::size_t>(column_parts(shape.rows, shape.channels) * shape.channels) * sizeof(float);
  return static_cast<std::size_t>(sum_parts(shape.rows, shape.channels, target) * shape.channels) * sizeof(double);
}

}  // namespace bantam::kernels
