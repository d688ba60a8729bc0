// Convolution with pooling on the CPU: one after the other, with the convolution's output, or its gradient, between.
#include "bantam/kernels/conv/conv2d_pool.h"

#include "bantam/kernels/common/workspace_layout.h"

namespace bantam::kernels::cpu {
namespace {

/// The workspace: the dense array, then the convolution's own scratch memory.
struct Dense {
  Dense(const Conv2dShape& shape, DType dtype, Conv2dPass pass, Workspace workspace) : data(workspace.data) {
    const std::size_t all = conv2d_pool_workspace_bytes(shape, dtype, pass, DeviceKind::cpu);
    require_workspace(workspace, all, "conv2d_pool");
    const std::size_t own = aligned_bytes(shape.y_elements() * static_cast<std::int64_t>(size_of(dtype)));
    rest = {static_cast<std::byte*>(workspace.data) + own, all - own};
  }
  void* data;
  Workspace rest;
};

}  // namespace

void conv2d_pool_forward(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w, void* y,
                         std::uint16_t* winner, Workspace workspace) {
  if (shape.y_elements() == 0) return;
  const Dense dense(shape, dtype, Conv2dPass::forward, workspace);
  conv2d_forward(exec, shape, dtype, x, w, dense.data, dense.rest);
  max_pool2d_forward(exec, pool_of_conv2d(shape), dtype, dense.data, y, winner);
}

void conv2d_pool_grad_weight(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* dy,
                             const std::uint16_t* winner, const Conv2dWeightGradient& to, Workspace workspace) {
  const Dense dense(shape, dtype, Conv2dPass::grad_weight, workspace);
  if (shape.y_elements() > 0) max_pool2d_grad_input(exec, pool_of_conv2d(shape), dtype, dy, winner, dense.data);
  conv2d_grad_weight(exec, shape, dtype, x, dense.data, to, dense.rest);
}

}  // namespace bantam::kernels::cpu
