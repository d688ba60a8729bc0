// Convolutions for inference on a GPU: 1x1 ones are GEMMs whose library adds bias and sum and clips at 0; those of
// images add the bias and apply any activation as they store; cuDNN's may add the bias and clip at 0; others get their
// epilogue in one pass after the convolution.
#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/common/cuda/gemm.h"
#include "bantam/kernels/common/cuda/libraries.h"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/conv/conv2d_inference.h"
#include "bantam/kernels/conv/conv2d_pointwise.h"
#include "bantam/kernels/conv/cuda/small_channels.h"
#include "bantam/kernels/conv/workspace_rules.h"
#include "bantam/kernels/matmul/workspace_rules.h"

namespace bantam::kernels::cuda {
namespace {

/// Runs a pointwise convolution with its epilogue; false, having done nothing, where no library does.
bool fused_product(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w,
                   const Epilogue& epilogue, void* y, Workspace workspace) {
  if (epilogue.f.kind != Activation::none && epilogue.f.kind != Activation::relu) return false;
  const MatmulShape s = pointwise_matmul(shape, Conv2dPass::forward);
  const GemmProblem problem{.m = s.m,
                            .n = s.n,
                            .k = s.k,
                            .transpose_b = true,
                            .a_stride = s.k,
                            .b_stride = s.k,
                            .c_stride = s.n,
                            .dtype = dtype,
                            .out_dtype = dtype,
                            .workspace_limit = matmul_workspace_rule(s),
                            .adds_bias = epilogue.bias != nullptr,
                            .clips = epilogue.f.kind == Activation::relu};
  return gemm_with_epilogue(exec, problem, {x, w, y, false, epilogue.bias, epilogue.residual}, workspace);
}

/// The convolution, then its epilogue in a pass of its own.
void run_apart(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w,
               const Epilogue& epilogue, void* y, Workspace workspace) {
  conv2d_forward(exec, shape, dtype, x, w, y, workspace);
  epilogue_forward(exec, shape.batch * shape.out_h() * shape.out_w(), shape.out_channels, dtype, epilogue, y);
}

/// Runs a convolution with bias and relu as one of cuDNN's kernels; false, where it has none or two passes are faster.
bool fused_relu(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w,
                const Epilogue& epilogue, void* y, Workspace workspace) {
  if (epilogue.bias == nullptr || epilogue.residual != nullptr || epilogue.f.kind != Activation::relu) return false;
  if (!conv2d_fuses_relu(shape, dtype, DeviceKind::cuda) || shape.x_elements() == 0) return false;
  Cudnn* const cudnn = Libraries::of(exec).cudnn();
  // cuDNN's part of the workspace, as large as for the convolution alone.
  const std::size_t bytes = conv2d_workspace_rule(shape, dtype, Conv2dPass::forward).patches_bytes;
  return cudnn != nullptr &&
         cudnn->convolve_bias_relu(shape, dtype, {x, w, epilogue.bias}, y, {workspace.data, bytes}, stream_of(exec),
                                   [&] { run_apart(exec, shape, dtype, x, w, epilogue, y, workspace); });
}

}  // namespace

/// Weights are read as conv2d_forward reads them.
void conv2d_pack_weights(const Exec&, const Conv2dShape&, DType, void*, Workspace) {}

void conv2d_inference(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w,
                      const Epilogue& epilogue, void* y, Workspace workspace) {
  check_conv2d_type(dtype);
  if (shape.y_elements() == 0) return;
  require_workspace(workspace, conv2d_inference_workspace_bytes(shape, dtype, DeviceKind::cuda), "conv2d_inference");
  if (is_pointwise(shape) && fused_product(exec, shape, dtype, x, w, epilogue, y, workspace)) return;
  if (conv2d_applies_epilogue(shape, dtype, DeviceKind::cuda) && !epilogue.empty() &&
      image_conv2d_epilogue(exec, shape, dtype, x, w, epilogue, y))
    return;
  if (fused_relu(exec, shape, dtype, x, w, epilogue, y, workspace)) return;
  run_apart(exec, shape, dtype, x, w, epilogue, y, workspace);
}

}  // namespace bantam::kernels::cuda
