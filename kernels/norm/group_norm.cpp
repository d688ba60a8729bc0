// Group normalisation: its scratch memory.
#include "bantam/kernels/norm/group_norm.h"

#include "bantam/kernels/norm/group_norm_parts.h"

namespace bantam::kernels {
namespace {

/// Values a channel that each kernel's workspace has.
std::int64_t channel_values(const GroupNormShape& s, DeviceKind target) {
  const bool cuda = target == DeviceKind::cuda;
  if (cuda && is_row_norm(s)) return most_row_parts(s) * 2;
  // CPU: the two totals, and the sums of each part twice: of all its rows, and of the block of rows under way.
  if (!cuda && s.positions == 1) return 2 + 4 * sum_parts(s.samples, s.channels, target);
  // Two partial results a sample, part and channel. CUDA: two values a sample and group beside them. CPU: a sample's
  // totals, the values z is made of, and the totals of all samples.
  const std::int64_t partials = 2 * position_parts(s, target);
  return cuda ? s.samples * (partials + 2) : s.samples * (partials + 6) + 2;
}

}  // namespace

std::size_t group_norm_workspace_bytes(const GroupNormShape& s, DType, DeviceKind target) {
  if (s.elements() <= 0) return 0;
  return static_cast<std::size_t>(channel_values(s, target) * s.channels) * sizeof(float);
}

}  // namespace bantam::kernels
