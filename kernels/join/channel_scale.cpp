// Channel scale: how much scratch memory the factors' gradient needs.
#include "bantam/kernels/join/channel_scale.h"

#include "bantam/kernels/join/position_parts.h"

namespace bantam::kernels {

std::size_t channel_scale_workspace_bytes(const ChannelScaleShape& shape, DeviceKind target) {
  if (shape.factors() <= 0) return 0;
  const std::int64_t parts = position_parts(shape, target);
  // The CPU adds up float32 sums before it rounds them; a block of CUDA's writes a lone part's sums where they belong.
  if (parts == 1 && (target == DeviceKind::cuda || shape.factor_dtype == DType::float32)) return 0;
  return static_cast<std::size_t>(shape.factors() * parts) * sizeof(float);
}

}  // namespace bantam::kernels
