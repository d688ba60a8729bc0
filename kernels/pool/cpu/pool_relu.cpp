// The gradient of max pooling of a relu on the CPU: relu' and sums over the windows, then max pooling's gradient.
#include "bantam/kernels/pool/pool_relu.h"

#include "bantam/kernels/pool/pool_relu_parts.h"

namespace bantam::kernels::cpu {

void max_pool2d_relu_grad(const Exec& exec, const Pool2dShape& shape, DType dtype, const void* dy, const void* y,
                          const std::uint16_t* winner, void* dz, float* sums, Workspace workspace) {
  require_workspace(workspace, max_pool2d_relu_grad_workspace_bytes(shape, dtype, DeviceKind::cpu),
                    "max_pool2d_relu_grad");
  const Workspace parts = PoolReluWorkspace::of(shape, dtype, DeviceKind::cpu).sums(workspace);
  bias_activation_grad(exec, {Activation::relu}, windows_of(shape), dtype, {.dy = dy, .y = y},
                       {.dx = workspace.data, .db = sums}, parts);
  max_pool2d_grad_input(exec, shape, dtype, workspace.data, winner, dz);
}

}  // namespace bantam::kernels::cpu
