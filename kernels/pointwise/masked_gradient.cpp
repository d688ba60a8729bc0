// The masked input gradient of a pointwise convolution: which shapes, and scratch memory.
#include "bantam/kernels/pointwise/masked_gradient.h"

#include "bantam/kernels/pointwise/masked_gradient_parts.h"

namespace bantam::kernels {

bool masked_gradient_supports(const PointwiseShape& s, DType dtype, DeviceKind target) {
  return target == DeviceKind::cuda && masked_gradient_fits(s, dtype);
}

std::size_t masked_gradient_workspace_bytes(const PointwiseShape& s, DType dtype, DeviceKind target) {
  const std::size_t chunks = MaskedGradientChunks(s, dtype, target).bytes();
  if (target != DeviceKind::cuda) return chunks;
  return std::max(chunks, static_cast<std::size_t>(4 * MaskedGradientTiles(s).parts() * s.in));
}

}  // namespace bantam::kernels
