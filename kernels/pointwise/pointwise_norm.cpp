// Pointwise convolution after a norm: which shapes, and scratch memory.
#include "bantam/kernels/pointwise/pointwise_norm.h"

#include "bantam/kernels/common/moment_parts.h"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/matmul/matmul.h"
#include "bantam/kernels/pointwise/warpgroup_parts.h"

namespace bantam::kernels {

bool pointwise_norm_supports(const PointwiseShape& s, DType dtype, ActivationFunction f) {
  return pointwise_supports(s, dtype) && (f.kind == Activation::relu || f.kind == Activation::relu6);
}

bool pointwise_norm_supports_gradient(const PointwiseShape& s, DType dtype) {
  return pointwise_supports(s, dtype) && pointwise_backward_fused(s);
}

std::size_t pointwise_norm_workspace_bytes(const PointwiseShape& s, DType dtype, DeviceKind target) {
  const PointwiseChunks chunks = pointwise_chunks(s, dtype, target);
  const PointwiseShape chunk{chunks.rows, s.in, s.out};
  const std::size_t products =
      std::max({matmul_workspace_bytes(pointwise_product(chunk), dtype, dtype, target),
                matmul_workspace_bytes(pointwise_grad_weight_product(chunk), dtype, DType::float32, target),
                matmul_workspace_bytes(pointwise_grad_input_product(s), dtype, dtype, target)});
  const std::size_t apart =
      chunks.a_bytes + chunks.dy_bytes + std::max(products, batch_norm_workspace_bytes({s.rows, s.out}, dtype, target));
  if (target != DeviceKind::cuda) return apart;
  const std::size_t sums = static_cast<std::size_t>(pointwise_grad_cut(s).parts * s.out * s.in) * sizeof(float);
  const std::int64_t parts = std::max(pointwise_parts(s), warpgroup_product_of(s).parts());
  return std::max({apart, sums, cuda::part_moments_bytes(parts, s.out)});
}

}  // namespace bantam::kernels
