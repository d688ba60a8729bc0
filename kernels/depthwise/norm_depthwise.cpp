// Depthwise convolution between batch norms: which shapes, and scratch memory.
#include "bantam/kernels/depthwise/norm_depthwise.h"

#include <algorithm>

#include "bantam/kernels/common/moment_parts.h"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/depthwise/norm_depthwise_parts.h"
#include "bantam/kernels/depthwise/norm_depthwise_plan.h"

namespace bantam::kernels {
namespace {

bool clamps(ActivationFunction f) { return f.kind == Activation::relu || f.kind == Activation::relu6; }

std::size_t floats(std::int64_t count) { return static_cast<std::size_t>(count) * sizeof(float); }

/// Factor and shift of the norms, backward's totals and sums, partial results of one pass after another, and rings.
std::size_t cpu_workspace_bytes(const DepthwiseConv2dShape& s) {
  const cpu::NormDepthwisePlan forward = cpu::plan_norm_forward(s), backward = cpu::plan_norm_backward(s);
  const std::int64_t gradient_sums = 2 * sum_parts(norm_after(s).rows, s.channels, DeviceKind::cpu);
  const std::int64_t vectors = std::max(kBackwardSums * backward.row_parts, gradient_sums);
  return floats(
      std::max((2 + kMomentFloats * forward.row_parts) * s.channels + forward.parts() * forward.outside_floats(),
               (6 + kBackwardSums + vectors) * s.channels + backward.parts() * backward.outside_floats()));
}

}  // namespace

bool norm_depthwise_supports(const DepthwiseConv2dShape& shape, ActivationFunction before, ActivationFunction after) {
  return fits_strips(shape) && shape.channels > 0 && shape.channels % 8 == 0 && clamps(before) && clamps(after);
}

std::size_t norm_depthwise_workspace_bytes(const DepthwiseConv2dShape& s, DType dtype, DeviceKind target) {
  if (target != DeviceKind::cuda) return cpu_workspace_bytes(s);
  const std::size_t norms = std::max(batch_norm_workspace_bytes(norm_before(s), dtype, target),
                                     batch_norm_workspace_bytes(norm_after(s), dtype, target));
  const std::int64_t forward = norm_forward_strips(s).parts, backward = norm_backward_strips(s).parts;
  const std::size_t totals = aligned_bytes(4 * s.channels * std::int64_t{sizeof(float)});
  return std::max(cuda::part_moments_bytes(forward, s.channels),
                  totals + std::max(norms, floats(backward * kBackwardSums * s.channels)));
}

}  // namespace bantam::kernels
