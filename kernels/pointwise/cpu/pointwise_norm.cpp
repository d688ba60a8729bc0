// Pointwise convolution after a norm on the CPU: the norm, then the GEMMs; what lies between them is in the
// workspace.
#include "bantam/kernels/pointwise/pointwise_norm.h"

#include "bantam/kernels/norm/statistics_pass.h"
#include "bantam/kernels/pointwise/pointwise_parts.h"

namespace bantam::kernels::cpu {
namespace {

/// The workspace: a, dy, and the ops' own scratch memory.
struct Scratch {
  char* a;
  char* dy;
  Workspace rest;

  Scratch(const PointwiseShape& s, DType dtype, Workspace workspace) {
    const std::size_t needed = pointwise_norm_workspace_bytes(s, dtype, DeviceKind::cpu);
    require_workspace(workspace, needed, "pointwise_norm");
    const PointwiseChunks chunks = pointwise_chunks(s, dtype, DeviceKind::cpu);
    a = static_cast<char*>(workspace.data);
    dy = a + chunks.a_bytes;
    rest = {dy + chunks.dy_bytes, needed - chunks.a_bytes - chunks.dy_bytes};
  }
};

}  // namespace

void norm_input_gradient(const Exec& exec, const BatchNormShape& shape, DType dtype, const NormInputGradient& from,
                         void* dx, Workspace workspace) {  // backward finds the same totals again
  NormOperand norm = from.y;
  norm.affine.activation = {};
  batch_norm_backward_training(exec, shape, dtype, norm, from.dz, {.dx = dx}, workspace);
}

void pointwise_norm_forward(const Exec& exec, const PointwiseShape& s, DType dtype, const NormOperand& x, const void* w,
                            void* y, const StatisticsOutput* statistics, Workspace workspace) {
  const Scratch scratch(s, dtype, workspace);
  batch_norm_apply(exec, {s.rows, s.in}, dtype, x.x, x.affine, x.mean, x.inv_std, scratch.a);
  matmul(exec, pointwise_product(s), dtype, scratch.a, w, {.data = y, .dtype = dtype}, scratch.rest);
  if (statistics != nullptr)
    statistics_pass(batch_norm_forward_training, exec, {s.rows, s.out}, dtype, y, *statistics, scratch.rest);
}

void pointwise_norm_backward(const Exec& exec, const PointwiseShape& s, DType dtype, const NormOperand& x,
                             const void* w, const NormInputGradient& from, const PointwiseGradients& gradients,
                             Workspace workspace) {
  const Scratch scratch(s, dtype, workspace);
  const void* dy = from.dz;
  if (from.totals != nullptr) {
    norm_input_gradient(exec, {s.rows, s.out}, dtype, from, scratch.dy, scratch.rest);
    dy = scratch.dy;
  }
  if (gradients.da != nullptr)
    matmul(exec, pointwise_grad_input_product(s), dtype, dy, w, {.data = gradients.da, .dtype = dtype}, scratch.rest);
  if (gradients.dw == nullptr) return;
  batch_norm_apply(exec, {s.rows, s.in}, dtype, x.x, x.affine, x.mean, x.inv_std, scratch.a);
  matmul(exec, pointwise_grad_weight_product(s), dtype, dy, scratch.a,
         {.data = gradients.dw, .dtype = DType::float32, .accumulate = gradients.accumulate}, scratch.rest);
}

}  // namespace bantam::kernels::cpu
