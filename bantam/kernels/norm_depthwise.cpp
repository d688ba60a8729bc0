// Depthwise convolution between batch norms: which shapes, and scratch memory.
#include "bantam/kernels/norm_depthwise.h"

#include <algorithm>

#include "bantam/kernels/norm_depthwise_parts.h"
#include "bantam/kernels/workspace_layout.h"

namespace bantam::kernels {
namespace {

bool clamps(ActivationFunction f) { return f.kind == Activation::relu || f.kind == Activation::relu6; }

/// Bytes of a tensor between two passes.
std::size_t written(std::int64_t elements, DType dtype) {
  return aligned_bytes(elements * static_cast<std::int64_t>(size_of(dtype)));
}

std::size_t floats(std::int64_t count) { return static_cast<std::size_t>(count) * sizeof(float); }

}  // namespace

bool norm_depthwise_takes(const DepthwiseConv2dShape& shape, ActivationFunction before, ActivationFunction after) {
  return takes_strips(shape) && shape.channels > 0 && shape.channels % 8 == 0 && clamps(before) && clamps(after);
}

std::size_t norm_depthwise_workspace_bytes(const DepthwiseConv2dShape& s, DType dtype, DeviceKind target) {
  const std::size_t norms = std::max(batch_norm_workspace_bytes(norm_before(s), dtype, target),
                                     batch_norm_workspace_bytes(norm_behind(s), dtype, target));
  if (target != DeviceKind::cuda)  // what lies between the passes is written
    return written(s.x_elements(), dtype) + written(s.y_elements(), dtype) +
           std::max(norms, depthwise_conv2d_grad_weight_workspace_bytes(s, dtype, target));
  const std::int64_t forward = norm_forward_strips(s).parts, backward = norm_backward_strips(s).parts;
  const std::size_t totals = aligned_bytes(4 * s.channels * std::int64_t{sizeof(float)});
  return std::max(floats(forward * (kMomentFloats * s.channels + 1)),
                  totals + std::max(norms, floats(backward * kBackwardSums * s.channels)));
}

std::int64_t norm_depthwise_bytes(const DepthwiseConv2dShape& shape, DType dtype) {
  return (shape.x_elements() + shape.y_elements()) * static_cast<std::int64_t>(size_of(dtype));
}

}  // namespace bantam::kernels
