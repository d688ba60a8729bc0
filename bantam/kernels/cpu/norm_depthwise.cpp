// Depthwise convolution between batch norms on the CPU: the three ops one after another, what lies between them in the
// workspace.
#include "bantam/kernels/norm_depthwise.h"

#include "bantam/kernels/activation.h"
#include "bantam/kernels/norm_depthwise_parts.h"
#include "bantam/kernels/workspace_layout.h"

namespace bantam::kernels::cpu {
namespace {

/// The workspace: x normalised, the gradient of y, and the ops' own scratch memory.
struct Pieces {
  void* seen;
  void* gradient;
  Workspace scratch;

  Pieces(const DepthwiseConv2dShape& s, DType dtype, Workspace workspace) {
    const std::size_t needed = norm_depthwise_workspace_bytes(s, dtype, DeviceKind::cpu);
    require_workspace(workspace, needed, "norm_depthwise");
    WorkspaceCutter cutter(workspace);
    seen = cutter.take<void>(static_cast<std::size_t>(s.x_elements()) * size_of(dtype));
    gradient = cutter.take<void>(static_cast<std::size_t>(s.y_elements()) * size_of(dtype));
    char* rest = cutter.take<char>(0);
    scratch = {rest, needed - static_cast<std::size_t>(rest - static_cast<char*>(workspace.data))};
  }
};

void apply(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const NormOperand& x, void* seen) {
  batch_norm_apply(exec, norm_before(s), dtype, x.x, x.affine, x.mean, x.inv_std, seen);
}

/// Gives the first norm's totals out as the gradients of its vectors.
void hand_out(const NormDepthwiseGradients& gradients, std::int64_t channels) {
  const auto put = [&](float* to, const float* sums) {
    if (to == nullptr) return;
    for (std::int64_t c = 0; c < channels; ++c) to[c] = gradients.before.accumulate ? to[c] + sums[c] : sums[c];
  };
  put(gradients.before.dshift, gradients.totals);
  put(gradients.before.dscale, gradients.totals + channels);
}

}  // namespace

void norm_depthwise_forward(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const NormOperand& x,
                            const void* w, void* y, const StatisticsOutput& statistics, Workspace workspace) {
  const Pieces pieces(s, dtype, workspace);
  apply(exec, s, dtype, x, pieces.seen);
  depthwise_conv2d_forward(exec, s, dtype, pieces.seen, w, y);
  batch_norm_forward_training(exec, norm_behind(s), dtype, y, {}, statistics.epsilon, statistics.update,
                              statistics.running_mean, statistics.running_variance, nullptr, statistics.mean,
                              statistics.inv_std, pieces.scratch);
}

void norm_depthwise_backward(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const NormOperand& x,
                             const void* w, const NormOperand& y, const void* dy, void* dx,
                             const NormDepthwiseGradients& gradients, Workspace workspace) {
  const Pieces pieces(s, dtype, workspace);
  const auto norm_backward = [&](const BatchNormShape& shape, const NormOperand& operand, const void* from, void* to,
                                 const VectorGradients& vectors) {
    batch_norm_backward_training(exec, shape, dtype, operand.x, from, operand.affine, operand.mean, operand.inv_std, to,
                                 vectors.dscale, vectors.dshift, vectors.accumulate, pieces.scratch);
  };
  norm_backward(norm_behind(s), y, dy, pieces.gradient, gradients.after);
  if (gradients.dw != nullptr) {
    apply(exec, s, dtype, x, pieces.seen);
    depthwise_conv2d_grad_weight(exec, s, dtype, pieces.seen, pieces.gradient, gradients.dw, gradients.accumulate,
                                 pieces.scratch);
  }
  depthwise_conv2d_grad_input(exec, s, dtype, pieces.gradient, w, dx);
  if (gradients.totals == nullptr) return norm_backward(norm_before(s), x, dx, dx, gradients.before);
  const ActivationFunction f = x.affine.activation;
  apply(exec, s, dtype, x, pieces.seen);
  activation_grad(exec, f.kind, f.slope, s.x_elements(), dtype, pieces.seen, dx, dx);
  NormOperand linear = x;
  linear.affine.activation = {};
  norm_backward(norm_before(s), linear, dx, nullptr, {gradients.totals + s.channels, gradients.totals, false});
  hand_out(gradients, s.channels);
}

}  // namespace bantam::kernels::cpu
