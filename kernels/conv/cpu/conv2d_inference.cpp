// Convolutions for inference on the CPU: weights are packed once, and the epilogue follows in the same pass.
#include "bantam/kernels/conv/conv2d_inference.h"

#include <algorithm>

#include "bantam/kernels/conv/cpu/packed_conv.h"
#include "bantam/kernels/conv/cpu/packed_panels.h"

namespace bantam::kernels::cpu {

void conv2d_pack_weights(const Exec& exec, const Conv2dShape& shape, DType dtype, void* w, Workspace workspace) {
  if (!packs_weights(shape, dtype) || shape.w_elements() == 0) return;
  require_workspace(workspace, conv2d_pack_workspace_bytes(shape, dtype, DeviceKind::cpu), "conv2d_pack_weights");
  auto *weights = static_cast<float*>(w), *plain = static_cast<float*>(workspace.data);
  std::copy_n(weights, shape.w_elements(), plain);
  pack_panels(plain, shape.out_channels, shape.w_elements() / shape.out_channels, weights, exec.threads);
}

void conv2d_inference(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w,
                      const Epilogue& epilogue, void* y, Workspace workspace) {
  check_conv2d_type(dtype);
  if (!packs_weights(shape, dtype)) {
    conv2d_forward(exec, shape, dtype, x, w, y, workspace);
    epilogue_forward(exec, shape.batch * shape.out_h() * shape.out_w(), shape.out_channels, dtype, epilogue, y);
    return;
  }
  if (shape.y_elements() == 0) return;
  packed_conv(forward_window(shape),
              {static_cast<const float*>(x), static_cast<const float*>(w), epilogue, static_cast<float*>(y)},
              exec.threads, workspace);
}

}  // namespace bantam::kernels::cpu
